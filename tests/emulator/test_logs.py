"""The log of jobs and Cloud Logging's entries:list: filters, order and pages."""

from __future__ import annotations

import itertools

import pytest

from distlaunch.emulator.filters import MAX_LENGTH
from distlaunch.emulator.logs import LogStore, as_json
from distlaunch.emulator.store import format_time


def texts(logs, **options):
    return [line.text for line in logs.scan(**options)]


@pytest.fixture
def logs():
    """A log in which job 1 has even lines and job 2 odd ones."""
    logs = LogStore()
    for number in range(10):
        logs.add(str(number % 2 + 1), "workerpool0-0", "INFO", str(number))
    return logs


@pytest.mark.parametrize("newest_first", [False, True])
def test_lines_are_in_the_order_in_which_they_were_written(logs, newest_first):
    step = -1 if newest_first else 1
    assert texts(logs, newest_first=newest_first) == list("0123456789")[::step]
    assert texts(logs, job_id="1", newest_first=newest_first) == list("02468")[::step]
    assert texts(logs, job_id="3") == []
    earliest = list(logs.scan())[7].time
    assert texts(logs, earliest=earliest, newest_first=newest_first) == list("789")[::step]


@pytest.mark.parametrize("newest_first", [False, True])
def test_pages_continue_after_a_line(logs, newest_first):
    options = {"job_id": "2", "newest_first": newest_first}
    pages, after = [], None
    while page := list(itertools.islice(logs.scan(after=after, **options), 2)):
        pages += page
        after = page[-1].number
    assert pages == list(logs.scan(**options))
    assert len(pages) == 5


def test_a_line_as_json():
    logs = LogStore()
    logs.add_job("77", "my-project")
    logs.add("77", "workerpool1-0", "ERROR", "no", trial="3")
    (line,) = logs.scan()
    assert as_json(line, logs.project("77")) == {
        "insertId": "00000000000001",
        "logName": "projects/my-project/logs/workerpool1-0",
        "resource": {
            "type": "ml_job",
            "labels": {"project_id": "my-project", "job_id": "77", "task_name": "workerpool1-0"},
        },
        "timestamp": format_time(line.time),
        "receiveTimestamp": format_time(line.time),
        "severity": "ERROR",
        "labels": {
            "ml.googleapis.com/job_id/log_area": "root",
            "ml.googleapis.com/trial_id": "3",
        },
        "jsonPayload": {"levelname": "ERROR", "message": "no"},
    }


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
