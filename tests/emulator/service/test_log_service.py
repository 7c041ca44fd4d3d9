from __future__ import annotations

from datetime import timedelta
from itertools import chain

import pytest

from distlaunch.emulator.store import project_number
from distlaunch.emulator.times import format_time, parse_time

RESOURCES = ["projects/my-project"]


@pytest.fixture
def lines(service):
    """Lines of two jobs of a project, and of one of another."""
    for job, project in (("11", "my-project"), ("22", "my-project"), ("33", "other")):
        service.logs.add_job(job, project)
        service.logs.add(job, "service", "INFO", "Job is running.")
        service.logs.add(job, "workerpool0-0", "INFO", "step 1")
        service.logs.add(job, "workerpool1-0", "ERROR", 'No "GPU" here')
        service.logs.add(job, "workerpool0-0", "WARNING", "Step 2")
    return service


def ask(service, text: str = "", **more) -> dict:
    body = {"resourceNames": RESOURCES, "filter": text, **more}
    return service.call("POST", "/v2/entries:list", body).json


def messages(service, text: str = "", **more) -> list[str]:
    found = ask(service, text, **more).get("entries", [])
    return [entry["jsonPayload"]["message"] for entry in found]


OF_ONE = 'resource.type="ml_job" AND resource.labels.job_id="11"'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OF_ONE, ["Job is running.", "step 1", 'No "GPU" here', "Step 2"]),
        (f'{OF_ONE} AND resource.labels.task_name="workerpool0-0"', ["step 1", "Step 2"]),
        (
            f'{OF_ONE} resource.labels.task_name=("service" OR "workerpool1-0")',
            ["Job is running.", 'No "GPU" here'],
        ),
        (f"{OF_ONE} AND severity>=WARNING", ['No "GPU" here', "Step 2"]),
        (f"{OF_ONE} AND severity=error", ['No "GPU" here']),
        (f"{OF_ONE} AND severity<200", []),
        (f'{OF_ONE} AND jsonPayload.message="STEP 1"', ["step 1"]),
        (f"{OF_ONE} AND jsonPayload.message:step", ["step 1", "Step 2"]),
        (f'{OF_ONE} AND jsonPayload.message=~"^Step \\\\d$"', ["Step 2"]),
        (f"{OF_ONE} AND jsonPayload.message!~step", ["Job is running.", 'No "GPU" here', "Step 2"]),
        (f'{OF_ONE} AND "\\"gpu\\""', ['No "GPU" here']),
        (f"{OF_ONE} AND NOT (step OR running)", ['No "GPU" here']),
        (f"{OF_ONE} AND jsonPayload.colour=red", []),
        (f"{OF_ONE} AND jsonPayload.colour!=red", []),
        (
            f"{OF_ONE} AND jsonPayload.levelname:*",
            ["Job is running.", "step 1", 'No "GPU" here', "Step 2"],
        ),
        (
            f'{OF_ONE} AND labels."ml.googleapis.com/job_id/log_area"=root AND severity=WARNING',
            ["Step 2"],
        ),
        (f'{OF_ONE} AND logName="projects/my-project/logs/service"', ["Job is running."]),
        ('resource.type="gce_instance"', []),
        ('resource.labels.job_id="33"', []),
        (
            '(resource.labels.job_id="11" OR resource.labels.job_id="22") AND severity=ERROR',
            ['No "GPU" here', 'No "GPU" here'],
        ),
    ],
)
def test_a_filter(lines, text, expected):
    assert messages(lines, text) == expected


def test_times_and_insert_ids_go_on_where_a_reader_stopped(lines):
    entries = ask(lines, OF_ONE)["entries"]
    second = entries[1]
    time, insert_id = second["timestamp"], second["insertId"]
    rest = ["step 1", 'No "GPU" here', "Step 2"]
    assert messages(lines, f'{OF_ONE} AND timestamp>="{time}"') == rest
    assert messages(lines, f'{OF_ONE} AND timestamp>"{time}"') == rest[1:]
    assert messages(lines, f'{OF_ONE} AND timestamp="{time}"') == rest[:1]
    assert messages(lines, f'{OF_ONE} AND timestamp<"{time}"') == ["Job is running."]
    after = f'((timestamp="{time}" AND insertId>"{insert_id}") OR timestamp>"{time}")'
    assert messages(lines, f"{OF_ONE} AND {after}") == rest[1:]
    assert messages(lines, f'{OF_ONE} AND insertId="{insert_id}"') == rest[:1]
    later = format_time(parse_time(time) + timedelta(hours=1))
    assert messages(lines, f'{OF_ONE} AND timestamp>="{later}"') == []


@pytest.mark.parametrize("order", ["timestamp asc", "timestamp desc", ""])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_page_by_page(lines, order, size):
    pages, token = [], None
    while token != "":
        more = {"pageToken": token} if token else {}
        page = ask(lines, orderBy=order, pageSize=size, **more)
        pages.append([entry["insertId"] for entry in page.get("entries", [])])
        token = page.get("nextPageToken", "")
    found = list(chain.from_iterable(pages))
    assert len(found) == 8
    assert found == sorted(found, reverse=order == "timestamp desc")
    assert all(len(page) == size for page in pages[:-1])


def test_an_entry_on_the_wire(lines):
    entry = ask(lines, f"{OF_ONE} AND severity=ERROR")["entries"][0]
    assert entry["resource"] == {
        "type": "ml_job",
        "labels": {"project_id": "my-project", "job_id": "11", "task_name": "workerpool1-0"},
    }
    assert parse_time(entry["receiveTimestamp"]) >= parse_time(entry["timestamp"])
    assert entry["severity"] == "ERROR"


def test_the_project_can_be_named_by_its_number(lines):
    names = [f"projects/{project_number('my-project')}"]
    assert len(messages(lines, resourceNames=names)) == 8
    assert len(messages(lines, resourceNames=["projects/other"])) == 4
    assert len(messages(lines, resourceNames=["projects/other", *RESOURCES])) == 12


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"resourceNames": []}, "At least one of resource_names is required."),
        (
            {"resourceNames": ["my-project"]},
            "The resource name 'my-project' is not of the form projects/PROJECT_ID.",
        ),
        ({"filter": "a=="}, "Unparseable filter: unexpected '='; filter: a=="),
        ({"filter": "job=1"}, "Unparseable filter: Field not found: 'job'; filter: job=1"),
        (
            {"filter": "severity>=LOUD"},
            "Unparseable filter: invalid severity 'LOUD'; filter: severity>=LOUD",
        ),
        (
            {"filter": "timestamp>now"},
            "Unparseable filter: 'now' is not a time in RFC 3339, such as "
            "2026-11-21T17:00:00Z; filter: timestamp>now",
        ),
        ({"filter": "x" * 20_001}, "The filter must be text of no more than 20000 characters."),
        (
            {"orderBy": "severity"},
            "Unsupported order_by 'severity'; use 'timestamp asc' or 'timestamp desc'.",
        ),
        ({"pageSize": -1}, "page_size must not be negative."),
        ({"pageToken": "?"}, "page_token is invalid."),
        ({"pageToken": "WyIiLCAiIiwgIngiXQ=="}, "page_token is invalid."),
        (
            {"pageToken": "WyJhIiwgIiIsIDFd"},
            "page_token doesn't match arguments from the request.",
        ),
        (
            {"pagesize": 1},
            'Invalid JSON payload received. Unknown name "pagesize": Cannot find field.',
        ),
    ],
)
def test_what_cannot_be_asked(lines, asked, said):
    reply = lines.call("POST", "/v2/entries:list", {"resourceNames": RESOURCES, **asked})
    assert (reply.status, reply.error["message"]) == (400, said)
