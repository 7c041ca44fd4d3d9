"""A job is followed over real HTTP; hours of it pass by a clock of the test."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from distlaunch import timestamps
from distlaunch.engines.api import LogSelection
from distlaunch.engines.vertex.client import connect
from distlaunch.engines.vertex.follow import EMULATOR, JobFollower, StateTracker
from distlaunch.engines.vertex.job_resource import read_status
from distlaunch.engines.vertex.jobs import Jobs
from distlaunch.errors import GoogleError
from distlaunch.events import JobChanged, Notice, TaskLines

from .servers import HALF, RESET, Clock, Reply, Server, refused

NAME = "projects/123/locations/us-central1/customJobs/77"
START = timestamps.parse("2026-11-21T17:00:00Z")
SPEC = {"workerPoolSpecs": [{"replicaCount": "1"}, {"replicaCount": "2"}]}
ERROR = {"code": 3, "message": "The replica workerpool0-0 exited with a non-zero status of 7."}


def stamp(seconds: float) -> str:
    return timestamps.format(START + seconds)


@dataclass
class Cloud:
    """A job and its log as they are at each second of the job's life."""

    clock: Clock
    life: dict[float, dict]  # changes of the job, by the second
    # Task, text, when it was written, and the times at which it can be read.
    lines: list[tuple[str, str, float, tuple[float, ...]]] = field(default_factory=list)
    failing: object = None  # returns a failure of a call (``get`` or ``list``) at a second, if any
    page: int = 100
    calls: list[tuple[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start = self.clock()

    @property
    def now(self) -> float:
        return self.clock() - self.start

    def job(self) -> dict:
        job = {"name": NAME, "createTime": stamp(0), "jobSpec": SPEC}
        for second, changes in sorted(self.life.items()):
            if second <= self.now:
                job |= {"updateTime": stamp(second), **changes}
        return job

    def __call__(self, request) -> Reply:
        call = "list" if request.path.endswith("entries:list") else "get"
        self.calls.append((call, self.now))
        failure = self.failing(call, self.now) if self.failing else None
        content = self.entries(request.body) if call == "list" else self.job()
        return failure or Reply(body=content)

    def entries(self, body: dict) -> dict:
        (since,) = re.findall(r'timestamp>="([^"]*)"', body["filter"])
        visible = sorted(
            (written, str(number), task, text)
            for number, (task, text, written, times) in enumerate(self.lines)
            for time in times
            if time <= self.now and START + written >= timestamps.parse(since)
        )
        start = int(body.get("pageToken", 0))
        end = start + self.page
        entries = [
            {
                "insertId": insert_id,
                "timestamp": stamp(written),
                "resource": {"labels": {"task_name": task}},
                "jsonPayload": {"message": text},
            }
            for written, insert_id, task, text in visible[start:end]
        ]
        return {"entries": entries} | ({"nextPageToken": str(end)} if visible[end:] else {})


RUN = {
    0: {"state": "JOB_STATE_PENDING"},
    60: {"state": "JOB_STATE_RUNNING", "startTime": stamp(60)},
}


def ended(state: str, at: float, **more: object) -> dict:
    return {at: {"state": f"JOB_STATE_{state}", "endTime": stamp(at), **more}}


def lines(*, every: float, until: float) -> list:
    """Return lines of two tasks from the job's start on."""
    return [
        (task, f"{task} {number}", second, (second,))
        for number in range(int((until - 60) / every))
        for second in [60 + number * every]
        for task in ("workerpool0-0", "workerpool1-1")
    ]


def texts(events) -> list[str]:
    return [line for e in events if isinstance(e, TaskLines) for line in e.text.splitlines()]


def states(events) -> list[tuple[str, float | None, str]]:
    return [(e.state, e.after, e.error) for e in events if isinstance(e, JobChanged)]


def notices(events) -> list[str]:
    return [e.text for e in events if isinstance(e, Notice)]


def assert_lines_shown_once(cloud: Cloud, events) -> None:
    assert sorted(texts(events)) == sorted(text for _, text, _, _ in cloud.lines)


@pytest.fixture
def follow(serve, clock, jobs_at):
    """Return a follower of a job in a cloud, and the server in its attribute `server`."""

    def run(cloud: Cloud, sleep=clock.sleep, **options) -> JobFollower:
        run.server = serve(cloud)
        now = lambda: START + cloud.now  # noqa: E731
        jobs = jobs_at(run.server)
        job, selection = read_status(cloud.job(), "p"), LogSelection()
        return JobFollower(jobs, job, selection, clock=clock, sleep=sleep, now=now, **options)

    return run


@pytest.mark.parametrize(("max_wait", "is_stalled"), [(30, True), (90, False), (None, False)])
def test_a_job_that_has_not_started_in_time_after_its_creation_is_stalled(
    follow, clock, max_wait, is_stalled
):
    cloud = Cloud(clock, RUN | ended("SUCCEEDED", 300), [])
    clock.sleep(20)  # the job is found this late
    following = follow(cloud, max_wait=max_wait)
    events = list(following)
    assert following.is_stalled == is_stalled
    assert cloud.now == pytest.approx(30, abs=1) if is_stalled else cloud.now > 300
    assert [state for state, _, _ in states(events)][-1] == (
        "PENDING" if is_stalled else "SUCCEEDED"
    )


def test_a_job_from_its_beginning_to_its_end(follow, clock):
    cloud = Cloud(clock, RUN | ended("SUCCEEDED", 300), lines(every=7, until=300))
    following = follow(cloud)
    events = list(following)
    assert [(state, after) for state, after, _ in states(events)] == [
        *(("PENDING", None), ("RUNNING", 60.0), ("SUCCEEDED", 240.0))
    ]
    assert texts(events) == [text for _, text, _, _ in cloud.lines]
    assert {e.task for e in events if isinstance(e, TaskLines)} == {"chief", "worker:1"}
    assert notices(events) == []
    assert following.status.state == "SUCCEEDED"
    assert cloud.now < 330


def test_google_is_not_called_too_often(follow, clock):
    cloud = Cloud(clock, RUN | ended("SUCCEEDED", 900), lines(every=60, until=300))
    list(follow(cloud))
    gets = [at for call, at in cloud.calls if call == "get"]
    lists = [at for call, at in cloud.calls if call == "list"]
    assert all(later - earlier >= 5.0 for earlier, later in pairwise([0.0, *gets]))
    assert sum(400 < at < 900 for at in lists) <= 500 / 10 + 1  # while nothing is written
    assert len(lists) < 900 / 4


@pytest.mark.parametrize("end", [{"state": "SUCCEEDED"}, {"state": "FAILED", "error": ERROR}])
def test_no_late_lines_are_expected_at_an_emulator(follow, clock, end):
    cloud = Cloud(clock, RUN | ended(at=80, **end), lines(every=7, until=80))
    assert_lines_shown_once(cloud, list(follow(cloud, intervals=EMULATOR)))
    assert cloud.now < 81


@pytest.mark.parametrize("state", ["FAILED", "EXPIRED", "PARTIALLY_SUCCEEDED"])
def test_an_end_without_success_waits_for_its_error(follow, clock, state):
    life = RUN | ended(state, 200) | ended(state, 265, error=ERROR, endTime=stamp(200))
    events = list(follow(Cloud(clock, life, lines(every=9, until=200))))
    assert states(events)[2:] == [(state, 140.0, ""), (state, None, ERROR["message"])]
    assert notices(events) == []


def test_an_error_that_never_comes_is_reported(follow, clock):
    cloud = Cloud(clock, RUN | ended("FAILED", 200))
    assert notices(follow(cloud)) == ["no error message from Vertex AI"]
    assert 300 < cloud.now < 340


def test_a_job_that_ended_long_ago_is_read_once(follow, clock):
    cloud = Cloud(clock, RUN | ended("FAILED", 100, error=ERROR), lines(every=9, until=100))
    cloud.start -= 10_000
    events = list(follow(cloud))
    assert states(events) == [("FAILED", None, ERROR["message"])]
    assert texts(events) == [text for _, text, _, _ in cloud.lines]
    assert (cloud.now, cloud.calls) == (10_000, [("list", 10_000)])


UNAVAILABLE = refused(503, "UNAVAILABLE", "Later.")
FAILURES = [UNAVAILABLE, refused(429), RESET, HALF, Reply(body=b"<html>")]


@pytest.mark.parametrize("failure", [UNAVAILABLE, RESET], ids=["503", "reset"])
def test_an_outage_of_hours_is_survived_and_reported_once(follow, clock, failure):
    cloud = Cloud(clock, RUN | ended("SUCCEEDED", 15_100), lines(every=50, until=15_090))
    cloud.failing = lambda _, at: failure if 200 <= at < 15_000 else None
    events = list(follow(cloud))
    assert_lines_shown_once(cloud, events)
    assert [state for state, _, _ in states(events)] == ["PENDING", "RUNNING", "SUCCEEDED"]
    outage, end = notices(events)
    assert outage.endswith("; retrying, the job keeps running")
    assert re.fullmatch(r"Google answers again, after 4 h [67] min", end)
    meanwhile = [call for call, at in cloud.calls if 1_000 < at < 15_000]
    assert len(meanwhile) < 2 * 14_000 / 60 * 1.1


def test_a_job_that_ends_in_an_outage_of_its_log_is_reported_to_have_ended(follow, clock):
    cloud = Cloud(clock, RUN | ended("SUCCEEDED", 500), lines(every=50, until=490))
    cloud.failing = lambda call, at: UNAVAILABLE if call == "list" and at > 300 else None
    events = list(follow(cloud))
    assert states(events)[-1][0] == "SUCCEEDED"
    assert notices(events)[-1] == (
        "the last lines may be missing, as the logs could not be read; "
        "'distlaunch logs' shows them later"
    )
    assert cloud.now < 900


def test_a_denied_log_is_reported_once_and_states_continue(follow, clock):
    cloud = Cloud(clock, RUN | ended("SUCCEEDED", 500))
    denied = refused(403, "PERMISSION_DENIED", "Permission 'logging.logEntries.list' denied")
    cloud.failing = lambda call, _: denied if call == "list" else None
    events = list(follow(cloud))
    (text,) = notices(events)
    assert text.startswith("no logs are shown: the permission logging.logEntries.list is missing")
    assert [state for state, _, _ in states(events)] == ["PENDING", "RUNNING", "SUCCEEDED"]
    assert sum(call == "list" for call, _ in cloud.calls) == 1


@pytest.mark.parametrize(("status", "message"), [(403, "Google refuses"), (404, "not found")])
def test_a_job_that_cannot_be_read_ends_it(follow, clock, status, message):
    cloud = Cloud(clock, RUN)
    cloud.failing = lambda call, at: refused(status) if call == "get" and at > 100 else None
    with pytest.raises(GoogleError, match=message):
        list(follow(cloud))


def test_states_are_reported_while_many_lines_are_read(follow, clock):
    cloud = Cloud(clock, RUN | ended("SUCCEEDED", 90), lines(every=0.1, until=80), page=10)
    cloud.failing = lambda call, _: clock.sleep(1.0) if call == "list" else None
    cloud.start -= 80
    events = list(follow(cloud))
    kinds = [type(e) for e in events]
    assert kinds.index(JobChanged, 1) < len(kinds) - 20
    assert_lines_shown_once(cloud, events)


def test_logs_of_the_trials_of_a_tuning_job(follow, clock):
    trials = [{"id": "1", "state": "ACTIVE", "customJob": f"{NAME[:-2]}88"}]
    list(follow(Cloud(clock, RUN | {80: {"trials": trials}} | ended("SUCCEEDED", 200))))
    requests = follow.server.requests
    first, *_, last = [request.body["filter"] for request in requests if request.body]
    assert 'resource.labels.job_id="77" AND ' in first
    assert '(resource.labels.job_id="77" OR resource.labels.job_id="88")' in last


@given(
    some.sets(some.integers(1, 60), max_size=25),
    some.sets(some.integers(1, 30)),
    some.lists(some.sampled_from([None, None, None, *FAILURES]), max_size=40),
    some.sampled_from([1, 3, 50]),
)
@example({10, 11}, set(), [], 50)
@settings(max_examples=20)
def test_each_line_is_shown_once_in_spite_of_failures_and_interrupts(
    signals, breaks, failures, page
):
    """An iteration that was interrupted, while it waited for the next call, is resumed."""
    clock, waits = Clock(), 0
    late = [("service", f"late {n}", 60 + n, (70 + 2 * n, 110)) for n in range(5)]
    late.append(("service", "after the end", 109, (116,)))
    cloud = Cloud(clock, RUN | ended("SUCCEEDED", 110), [*lines(every=10, until=109), *late])
    left = list(failures)
    cloud.failing = lambda *_: left.pop() if left else None
    cloud.page = page

    def sleep(seconds: float) -> None:
        nonlocal waits
        waits += 1
        if waits in signals:
            os.kill(os.getpid(), signal.SIGINT)
        clock.sleep(seconds)

    server, events, interruptions, follower = Server(cloud), [], 0, None
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        session = connect(server.url, clock=clock, sleep=clock.sleep)
        jobs, job = Jobs(session, "p", "us-central1"), read_status(cloud.job(), "p")
        is_complete = False
        while not is_complete:
            try:
                follower = follower or JobFollower(
                    jobs, job, LogSelection(), clock=clock, sleep=sleep
                )
                for event in follower:
                    events.append(event)
                    if len(events) in breaks:
                        break
                else:
                    is_complete = True
            except KeyboardInterrupt:
                interruptions += 1
    finally:
        signal.signal(signal.SIGINT, before)
        server.close()
    assert interruptions == sum(number <= waits for number in signals)
    assert_lines_shown_once(cloud, events)
    assert [state for state, _, _ in states(events)] == ["PENDING", "RUNNING", "SUCCEEDED"]


def test_a_retry_after_of_days_is_not_respected(follow, clock):
    cloud = Cloud(clock, RUN | ended("SUCCEEDED", 300), lines(every=50, until=290))
    busy = Reply(503, {}, {"Retry-After": "1000000"})
    cloud.failing = lambda _, at: busy if at < 100 else None
    assert_lines_shown_once(cloud, list(follow(cloud)))
    assert 600 < cloud.now < 650


@pytest.mark.parametrize("end", [{}, ended("FAILED", 96)], ids=["running", "ended"])
def test_an_emulator_that_has_stopped_ends_it(follow, clock, end):
    cloud = Cloud(clock, RUN | end, failing=lambda _, at: RESET if at >= 104 else None)

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if cloud.now >= 104:
            follow.server.close()

    follower = follow(cloud, sleep)
    if end:
        assert states(follower)[-1][0] == "FAILED"
    else:
        with pytest.raises(GoogleError, match=r"^http://.* refuses connections: the emulator has"):
            list(follower)
    assert cloud.now < 130


# States and their durations


def job(state: str, *, start: int = -1, update: int = -1, end: int = -1) -> dict:
    times = {"createTime": 0, "startTime": start, "updateTime": update, "endTime": end}
    stamps = {name: stamp(second) for name, second in times.items() if second >= 0}
    return {"state": f"JOB_STATE_{state}", **stamps}


@pytest.mark.parametrize(
    ("updates", "expected"),
    [
        (
            [job("PENDING"), job("FAILED", start=30, end=31)],
            [("PENDING", None), ("RUNNING", 30.0), ("FAILED", 1.0)],
        ),
        ([job("PENDING"), job("CANCELLED", end=100)], [("PENDING", None), ("CANCELLED", 100.0)]),
        (
            [job("CANCELLING", update=70), job("CANCELLED", end=100)],
            [("CANCELLING", None), ("CANCELLED", 100.0)],
        ),
        (
            [job("RUNNING", start=40, update=60), job("CANCELLED", end=100)],
            [("RUNNING", None), ("CANCELLED", 60.0)],
        ),
        (
            [{"state": "JOB_STATE_PENDING"}, {"state": "JOB_STATE_RUNNING"}],
            [("PENDING", None), ("RUNNING", None)],
        ),
        (
            [job("RUNNING", start=10), job("UPDATING", update=50), job("RUNNING", update=55)],
            [("RUNNING", None), ("UPDATING", 40.0), ("RUNNING", 5.0)],
        ),
        ([job("RUNNING") | {"error": {"message": "a restart"}}], [("RUNNING", None)]),
    ],
    ids=["a short run", "pending", "cancelling", "running", "no timestamps", "updating", "error"],
)
def test_states_and_the_durations_between_them(updates, expected):
    tracker = StateTracker()
    statuses = [read_status({"name": NAME} | update, "p") for update in updates]
    changes = [change for status in statuses for change in tracker.update(status)]
    durations = [(change.state, change.after, change.error) for change in changes]
    assert durations == [(*change, "") for change in expected]
