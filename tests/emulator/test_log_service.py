"""Cloud Logging's entries:list: filters, order and pages."""

from __future__ import annotations

import pytest

from distlaunch.emulator.filters import MAX_LENGTH

LIST = "/v2/entries:list"


@pytest.fixture
def entries(service):
    """List entries of two jobs by a filter; return their texts."""
    service.logs.add_job("11", "my-project")
    service.logs.add_job("22", "other")
    for task, severity, text in (
        ("service", "INFO", "provisioned"),
        ("workerpool0-0", "INFO", "epoch 1"),
        ("workerpool1-0", "ERROR", 'a "quoted" \\ failure'),
    ):
        service.logs.add("11", task, severity, text)
    service.logs.add("22", "service", "INFO", "of another project")

    def run(text: str = "", **fields):
        query = {"resourceNames": ["projects/my-project"], "filter": text} | fields
        answer = service.call("POST", LIST, query).json()
        run.token = answer.get("nextPageToken")
        return [entry["jsonPayload"]["message"] for entry in answer["entries"]]

    return run


ALL = ["provisioned", "epoch 1", 'a "quoted" \\ failure']


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", [0, 1, 2]),
        ('resource.type="ml_job" AND resource.labels.job_id="11"', [0, 1, 2]),
        ('resource.labels.job_id="22"', []),
        ('resource.type="ml_job" resource.labels.task_name="workerpool0-0"', [1]),
        (
            'resource.labels.task_name="service" OR resource.labels.task_name="workerpool1-0" '
            "AND severity>=ERROR",
            [2],
        ),
        ('resource.labels.task_name!="service" AND severity<ERROR', [1]),
        ('timestamp>="2026-01-01T00:00:00Z" AND timestamp<"2999-01-01"', [0, 1, 2]),
        # google-cloud-logging's own format of times
        ('timestamp>="2026-01-01T00:00:00.123456+0000"', [0, 1, 2]),
        # gcloud's position
        (
            '((timestamp="1970-01-01T01:00:00.000000000Z" AND insertId>"0") OR '
            'timestamp>"1970-01-01T01:00:00.000000000Z") AND timestamp<"2999-01-01T00:00:00+00:00"',
            [0, 1, 2],
        ),
        ('jsonPayload.message:"EPOCH"', [1]),
        ('jsonPayload.message="a \\"quoted\\" \\\\ failure"', [2]),
        ("jsonPayload.absent:*", []),
    ],
)
def test_entries_are_filtered(text, numbers, entries):
    assert entries(text) == [ALL[number] for number in numbers]


def test_pages_and_the_newest_first(entries):
    assert entries(pageSize=2) == ALL[:2]
    assert entries(pageSize=2, pageToken=entries.token) == ALL[2:]
    assert entries.token is None
    newest = {"orderBy": "timestamp desc", "pageSize": 2}
    assert entries(**newest) == ALL[:0:-1]
    assert entries(**newest, pageToken=entries.token) == ALL[:1]


@pytest.mark.parametrize(
    "text",
    [
        "epoch",
        "NOT severity=ERROR",
        'textPayload=~"a.*"',
        'timestamp>="yesterday"',
        "severity>=LOUD",
        'bogus="a"',
        "(severity=INFO",
        "severity=INFO OR",
        "(" * 200 + "severity=INFO" + ")" * 200,
        'jsonPayload.message="' + "a" * MAX_LENGTH + '"',
    ],
)
def test_other_filters_are_refused(text, service):
    query = {"resourceNames": ["projects/my-project"], "filter": text}
    code, message = service.error("POST", LIST, query)
    assert (code, "filter" in message) == (400, True)


@pytest.mark.parametrize(
    "fields",
    [
        {"resourceNames": []},
        {"resourceNames": ["my-project"]},
        {"orderBy": "severity"},
        {"pageToken": "x"},
        {"pageSize": "x"},
        {"pageSize": -1},
    ],
)
def test_other_queries_are_refused(fields, service):
    assert service.error("POST", LIST, {"resourceNames": ["projects/p"]} | fields)[0] == 400
