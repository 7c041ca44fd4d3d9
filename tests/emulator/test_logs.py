from __future__ import annotations

import itertools

import pytest

from distlaunch.emulator.logs import LogStore, as_json
from distlaunch.emulator.times import format_time


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
