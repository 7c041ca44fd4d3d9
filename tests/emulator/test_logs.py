from __future__ import annotations

import itertools
from datetime import datetime, timezone

import pytest

from distlaunch.emulator.logs import Logs, as_json

START = datetime(2025, 11, 21, 17, tzinfo=timezone.utc)


def texts(logs, **options):
    return [entry.text for entry in logs.scan(**options)]


@pytest.fixture
def logs():
    """A log in which job 1 has even lines and job 2 odd ones, all written at the same time."""
    logs = Logs(clock=lambda: START)
    for number in range(10):
        logs.add(str(number % 2 + 1), "workerpool0-0", "INFO", str(number))
    return logs


@pytest.mark.parametrize("newest_first", [False, True])
def test_entries_are_in_the_order_in_which_they_were_written(logs, newest_first):
    step = -1 if newest_first else 1
    assert texts(logs, newest_first=newest_first) == list("0123456789")[::step]
    assert texts(logs, job_id="1", newest_first=newest_first) == list("02468")[::step]
    assert texts(logs, job_id="3") == []


@pytest.mark.parametrize("newest_first", [False, True])
def test_pages_continue_after_an_entry(logs, newest_first):
    options = {"job_id": "2", "newest_first": newest_first}
    pages, after = [], None
    while page := list(itertools.islice(logs.scan(after=after, **options), 2)):
        pages += page
        after = page[-1].number
    assert pages == list(logs.scan(**options))
    assert len(pages) == 5


def test_entries_from_a_time_on(logs):
    earliest = list(logs.scan())[7].time
    assert texts(logs, earliest=earliest) == ["7", "8", "9"]
    assert texts(logs, earliest=earliest, newest_first=True) == ["9", "8", "7"]


def test_an_entry_as_json():
    logs = Logs(clock=lambda: START)
    logs.add_job("77", "my-project")
    logs.add("77", "workerpool1-0", "ERROR", "no", trial="3")
    (entry,) = logs.scan()
    assert as_json(entry, logs.project("77")) == {
        "insertId": "00000000000001",
        "logName": "projects/my-project/logs/workerpool1-0",
        "resource": {
            "type": "ml_job",
            "labels": {"project_id": "my-project", "job_id": "77", "task_name": "workerpool1-0"},
        },
        "timestamp": "2025-11-21T17:00:00.000000Z",
        "receiveTimestamp": "2025-11-21T17:00:00.000000Z",
        "severity": "ERROR",
        "labels": {
            "ml.googleapis.com/job_id/log_area": "root",
            "ml.googleapis.com/trial_id": "3",
        },
        "jsonPayload": {"levelname": "ERROR", "message": "no"},
    }
