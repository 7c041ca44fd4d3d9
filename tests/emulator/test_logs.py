from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.emulator.logs import Logs, as_json
from distlaunch.emulator.times import NANOSECONDS


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1_763_744_400 * NANOSECONDS

    def __call__(self) -> int:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += int(seconds * NANOSECONDS)


def texts(logs: Logs, **kwargs) -> list[str]:
    return [entry.text for entry in logs.scan(**kwargs)]


@pytest.mark.parametrize("newest_first", [False, True])
def test_entries_stand_in_the_order_of_their_times_and_of_the_lines(newest_first):
    clock = Clock()
    logs = Logs(clock=clock)
    for number in range(2500):
        logs.add("1" if number % 3 else "2", "workerpool0-0", "INFO", str(number))
        clock.pass_by(number % 2)
    expected = [str(number) for number in range(2500)]
    assert texts(logs, newest_first=newest_first) == expected[:: -1 if newest_first else 1]
    of_one = [number for number in expected if int(number) % 3]
    assert (
        texts(logs, job_id="1", newest_first=newest_first) == of_one[:: -1 if newest_first else 1]
    )
    assert texts(logs, job_id="3") == []


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30),
    st.integers(1, 5),
    st.booleans(),
)
def test_page_by_page_each_entry_comes_once(lines, size, newest_first):
    clock = Clock()
    logs = Logs(duplicates=0.5, clock=clock)
    for seconds, is_first in lines:
        clock.pass_by(seconds)
        logs.add("1" if is_first else "2", "workerpool0-0", "INFO", "")
    clock.pass_by(10)
    whole = list(logs.scan(newest_first=newest_first))
    pages, after = [], None
    while page := list(itertools.islice(logs.scan(after=after, newest_first=newest_first), size)):
        pages += page
        after = page[-1].key
    assert pages == whole
    assert len(whole) >= len(lines)


def test_entries_from_a_time_on():
    clock = Clock()
    logs = Logs(clock=clock)
    for text in "abc":
        clock.pass_by(1)
        logs.add("1", "service", "INFO", text)
    assert texts(logs, earliest=clock.now - NANOSECONDS) == ["b", "c"]
    assert texts(logs, earliest=clock.now - NANOSECONDS, newest_first=True) == ["c", "b"]


def test_late_lines_are_seen_later_at_their_own_time():
    clock = Clock()
    logs = Logs(late=10, clock=clock)
    for number in range(100):
        logs.add("1", "workerpool0-0", "INFO", str(number))
        clock.pass_by(0.001)
    seen = texts(logs)
    assert 30 < len(seen) < 70
    clock.pass_by(10)
    assert texts(logs) == [str(number) for number in range(100)]
    late = [entry for entry in logs.scan() if entry.text not in seen]
    assert all(0 < entry.received - entry.time < 10 * NANOSECONDS for entry in late)


def test_a_doubled_line_has_one_insert_id_and_one_time():
    clock = Clock()
    logs = Logs(duplicates=1.0, clock=clock)
    for number in range(50):
        logs.add("1", "workerpool0-0", "INFO", str(number))
    at_once = len(list(logs.scan()))
    assert 50 < at_once < 100
    clock.pass_by(1)
    entries = list(logs.scan())
    told = [as_json(entry, "my-project") for entry in entries]
    assert len(told) == 100
    for one, other in itertools.pairwise(told[:2]):
        assert one["insertId"] == other["insertId"]
        assert one["timestamp"] == other["timestamp"]
    assert len({entry["insertId"] for entry in told}) == 50


def test_a_late_line_does_not_disturb_a_reader():
    clock = Clock()
    logs = Logs(late=5, seed=1, clock=clock)
    for number in range(3000):
        logs.add("1", "workerpool0-0", "INFO", str(number))
        clock.pass_by(0.001)
    reader = logs.scan()
    first = [next(reader).text for _ in range(10)]
    clock.pass_by(5)
    list(logs.scan())  # which takes the late ones in
    rest = [entry.text for entry in reader]
    assert len({*first, *rest}) == len(first) + len(rest)


def test_an_entry_as_cloud_logging_tells_it():
    logs = Logs(clock=lambda: 1_763_744_400_000_000_001)
    logs.begin("77", "my-project")
    logs.add("77", "workerpool1-0", "ERROR", "no", trial="3")
    (entry,) = logs.scan()
    assert as_json(entry, logs.project("77")) == {
        "insertId": "00000000000001",
        "logName": "projects/my-project/logs/workerpool1-0",
        "resource": {
            "type": "ml_job",
            "labels": {"project_id": "my-project", "job_id": "77", "task_name": "workerpool1-0"},
        },
        "timestamp": "2025-11-21T17:00:00.000000001Z",
        "receiveTimestamp": "2025-11-21T17:00:00.000000001Z",
        "severity": "ERROR",
        "labels": {
            "ml.googleapis.com/job_id/log_area": "root",
            "ml.googleapis.com/trial_id": "3",
        },
        "jsonPayload": {"levelname": "ERROR", "message": "no"},
    }
