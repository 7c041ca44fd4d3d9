"""A job is followed over real HTTP; hours of it pass by a clock of the test's."""

from __future__ import annotations

import os
import re
import signal
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from distlaunch.errors import GoogleError
from distlaunch.google.client import connect
from distlaunch.google.follow import EMULATOR, JobFollower
from distlaunch.google.jobs import Jobs
from distlaunch.google.logs import Logs
from distlaunch.ui.events import JobChanged, TaskLines

from .clouds import (
    BEGAN,
    ERROR,
    NAME,
    RUN,
    Cloud,
    ended,
    lines,
    notices,
    stamp,
    states,
    texts,
)
from .servers import HALF, RESET, Clock, Reply, Server, refused


@pytest.fixture
def follow(serve, clock):
    """Follow a job in a cloud; returns who does it, whose events are still to be request for."""

    def run(cloud: Cloud, **kwargs) -> JobFollower:
        session = connect(serve(cloud).url, project="p", clock=clock, sleep=clock.sleep)
        jobs, logs = Jobs(session, "p", "us-central1"), Logs(session, "p")
        now = lambda: BEGAN + cloud.now  # noqa: E731
        return JobFollower(
            jobs, logs, cloud.job(), clock=clock, sleep=clock.sleep, now=now, **kwargs
        )

    return run


def test_a_job_from_its_beginning_to_its_end(follow, clock):
    cloud = Cloud(clock, RUN | ended("SUCCEEDED", 300), lines(every=7, until=300))
    following = follow(cloud)
    events = list(following)
    assert states(events) == [
        ("PENDING", None, ""),
        ("RUNNING", 60.0, ""),
        ("SUCCEEDED", 240.0, ""),
    ]
    assert texts(events) == [text for _, text, _, _ in cloud.lines]
    assert {e.task for e in events if isinstance(e, TaskLines)} == {"chief", "worker:1"}
    assert notices(events) == []
    assert following.job["state"] == "JOB_STATE_SUCCEEDED"
    assert cloud.now < 330


def test_google_is_not_called_too_often(follow, clock):
    cloud = Cloud(clock, RUN | ended("SUCCEEDED", 1_500), lines(every=60, until=500))
    list(follow(cloud))
    gets = [at for call, at in cloud.calls if call == "get"]
    lists = [at for call, at in cloud.calls if call == "list"]
    assert all(later - earlier >= 5.0 for earlier, later in pairwise([0.0, *gets]))
    assert sum(600 < at < 1_500 for at in lists) <= 900 / 10 + 1  # while nothing is written
    assert len(lists) < 1_500 / 4


def test_late_and_doubled_lines_are_shown_once(follow, clock):
    cloud = Cloud(
        clock,
        RUN | ended("SUCCEEDED", 1_000),
        [
            *lines(every=5, until=990, times_there=2),
            ("workerpool1-0", "two minutes late", 500, (620, 640)),
            ("workerpool1-0", "after the end", 999, (1_006,)),
            ("service", "late, too", 700, (1_007, 1_008)),
        ],
    )
    events = list(follow(cloud))
    assert sorted(texts(events)) == sorted(text for _, text, _, _ in cloud.lines)


@pytest.mark.parametrize("end", [{"state": "SUCCEEDED"}, {"state": "FAILED", "error": ERROR}])
def test_no_late_lines_are_expected_at_an_emulator(follow, clock, end):
    cloud = Cloud(clock, RUN | ended(at=80, **end), lines(every=7, until=80))
    events = list(follow(cloud, intervals=EMULATOR))
    assert texts(events) == [text for _, text, _, _ in cloud.lines]
    assert cloud.now < 81


@pytest.mark.parametrize("state", ["FAILED", "EXPIRED", "PARTIALLY_SUCCEEDED"])
def test_an_end_without_success_waits_for_its_error(follow, clock, state):
    life = RUN | ended(state, 200) | ended(state, 265, error=ERROR, endTime=stamp(200))
    events = list(follow(Cloud(clock, life, lines(every=9, until=200))))
    assert states(events)[2:] == [(state, 140.0, ""), (state, None, ERROR["message"])]
    assert notices(events) == []


def test_an_error_that_never_comes_is_not_waited_for_for_ever(follow, clock):
    cloud = Cloud(clock, RUN | ended("FAILED", 200))
    events = list(follow(cloud))
    assert notices(events) == ["no error message from Vertex AI"]
    assert 300 < cloud.now < 340


def test_a_job_that_ended_long_ago_is_read_once(follow, clock):
    cloud = Cloud(clock, RUN | ended("FAILED", 100, error=ERROR), lines(every=9, until=100))
    cloud.start -= 10_000
    before = cloud.now
    events = list(follow(cloud))
    assert states(events) == [("FAILED", None, ERROR["message"])]
    assert texts(events) == [text for _, text, _, _ in cloud.lines]
    assert cloud.now == before
    assert [call for call, _ in cloud.calls] == ["list"]


TROUBLE = {
    "503": refused(503, "UNAVAILABLE", "Later."),
    "429": refused(429, "RESOURCE_EXHAUSTED", "Quota exceeded for 'Read requests per minute'."),
    "reset": RESET,
    "half": HALF,
    "html": Reply(body=b"<html>"),
}


@pytest.mark.parametrize("kind", ["503", "reset"])
def test_hours_of_trouble_are_survived_and_reported_once(follow, clock, kind):
    cloud = Cloud(clock, RUN | ended("SUCCEEDED", 15_100), lines(every=50, until=15_090))
    cloud.failing = lambda _, at: TROUBLE[kind] if 200 <= at < 15_000 else None
    events = list(follow(cloud))
    assert sorted(texts(events)) == sorted(text for _, text, _, _ in cloud.lines)
    assert [state for state, _, _ in states(events)] == ["PENDING", "RUNNING", "SUCCEEDED"]
    trouble, over = notices(events)
    assert trouble.endswith("; retrying, the job keeps running")
    assert re.fullmatch(r"Google answers again, after 4 h [67] min", over)
    meanwhile = [call for call, at in cloud.calls if 1_000 < at < 15_000]
    assert len(meanwhile) < 2 * 14_000 / 60 * 1.1


def test_a_job_that_ends_in_trouble_is_reported_to_have_ended(follow, clock):
    cloud = Cloud(clock, RUN | ended("SUCCEEDED", 500), lines(every=50, until=490))
    cloud.failing = lambda call, at: TROUBLE["503"] if call == "list" and at > 300 else None
    events = list(follow(cloud))
    assert states(events)[-1][0] == "SUCCEEDED"
    assert notices(events)[-1] == (
        "the last lines may be missing, as the logs could not be read; "
        "'distlaunch logs' shows them later"
    )
    assert cloud.now < 900


def test_logs_that_may_not_be_read_are_reported_once_and_states_go_on(follow, clock):
    cloud = Cloud(clock, RUN | ended("SUCCEEDED", 500))
    denied = refused(403, "PERMISSION_DENIED", "Permission 'logging.logEntries.list' denied")
    cloud.failing = lambda call, _: denied if call == "list" else None
    events = list(follow(cloud))
    (text,) = notices(events)
    assert text.startswith("no logs are shown: the permission logging.logEntries.list is missing")
    assert [state for state, _, _ in states(events)] == ["PENDING", "RUNNING", "SUCCEEDED"]
    assert sum(call == "list" for call, _ in cloud.calls) == 1


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (refused(403), "Google refuses"),
        (refused(404), "not found"),
        (Reply(body={"name": NAME, "state": 5}), "invalid response: state: expected text, got 5$"),
    ],
    ids=["denied", "gone", "invalid"],
)
def test_a_job_that_cannot_be_read_ends_it(follow, clock, reply, message):
    cloud = Cloud(clock, RUN)
    cloud.failing = lambda call, at: reply if call == "get" and at > 100 else None
    with pytest.raises(GoogleError, match=message):
        list(follow(cloud))


def test_states_are_reported_while_many_lines_are_read(follow, clock):
    cloud = Cloud(clock, RUN | ended("SUCCEEDED", 90), lines(every=0.1, until=80), page=10)
    answer = cloud._entries

    def slow(body):
        clock.sleep(1.0)
        return answer(body)

    cloud._entries = slow
    cloud.start -= 80
    events = list(follow(cloud))
    kinds = [type(e) for e in events]
    assert kinds.index(JobChanged, 1) < len(kinds) - 20
    assert len(texts(events)) == len(cloud.lines)


def test_trials_logs_of_a_tuning_job(follow, clock):
    trials = [{"id": "1", "state": "ACTIVE", "customJob": f"{NAME[:-2]}88"}]
    life = RUN | {80: {"trials": trials}} | ended("SUCCEEDED", 200)
    cloud = Cloud(clock, life)
    request = []
    answer = cloud._entries
    cloud._entries = lambda body: (request.append(body["filter"]), answer(body))[1]
    list(follow(cloud))
    assert 'resource.labels.job_id="77" AND ' in request[0]
    assert '(resource.labels.job_id="77" OR resource.labels.job_id="88")' in request[-1]


FAILURES = some.lists(some.sampled_from([None, None, None, *TROUBLE.values()]), max_size=40)


@given(
    some.sets(some.integers(1, 600), max_size=25),
    some.sets(some.integers(1, 30)),
    FAILURES,
    some.sampled_from([1, 3, 50]),
)
@example({10, 11}, set(), [], 50)
@settings(max_examples=20)
def test_whatever_fails_and_whoever_interrupts_each_line_is_shown_once(
    signals, breaks, failures, page
):
    """The law of following: an iteration that was broken off is gone on with by the next.

    Ctrl-C comes where the time is looked at, which is before, amid and after all that is done.
    """
    clock, looks = Clock(), 0
    late = [("service", f"late {n}", 60 + n, (70 + 2 * n, 110)) for n in range(5)]
    cloud = Cloud(clock, RUN | ended("SUCCEEDED", 110), [*lines(every=10, until=109), *late])
    left = list(failures)
    cloud.failing = lambda *_: left.pop() if left else None
    cloud.page = page

    def look() -> float:
        nonlocal looks
        looks += 1
        if looks in signals:
            os.kill(os.getpid(), signal.SIGINT)
        return clock()

    server, events, interruptions = Server(cloud), [], 0
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        session = connect(server.url, clock=clock, sleep=clock.sleep)
        jobs, logs = Jobs(session, "p", "us-central1"), Logs(session, "p")
        first = cloud.job()
        while True:
            try:
                follow = JobFollower(jobs, logs, first, clock=look, sleep=clock.sleep)
                break
            except KeyboardInterrupt:
                interruptions += 1
        while True:
            try:
                for event in follow:
                    events.append(event)
                    if len(events) in breaks:
                        break
                else:
                    break
            except KeyboardInterrupt:
                interruptions += 1
    finally:
        signal.signal(signal.SIGINT, before)
        server.close()
    sent = sum(number <= looks for number in signals)
    assert min(sent, 1) <= interruptions <= sent  # two that are held back together come as one
    assert sorted(texts(events)) == sorted(text for _, text, _, _ in cloud.lines)
    assert [state for state, _, _ in states(events)] == ["PENDING", "RUNNING", "SUCCEEDED"]


def test_google_may_ask_to_be_left_alone_but_not_for_ever(follow, clock):
    cloud = Cloud(clock, RUN | ended("SUCCEEDED", 300), lines(every=50, until=290))
    busy = Reply(503, {}, {"Retry-After": "1000000"})
    cloud.failing = lambda _, at: busy if at < 100 else None
    events = list(follow(cloud))
    assert sorted(texts(events)) == sorted(text for _, text, _, _ in cloud.lines)
    assert 600 < cloud.now < 650


# An emulator that stops


@pytest.fixture
def follow_until_stopped(clock):
    """Follow a job at an emulator that stops at a time, and may be there again at another."""
    servers = []

    def run(cloud: Cloud, *, stops: float, back: float = float("inf")) -> JobFollower:
        server = Server(cloud)
        servers.append(server)
        cloud.failing = lambda _, at: RESET if stops <= at < back else None

        def sleep(seconds: float) -> None:
            clock.sleep(seconds)
            if stops <= cloud.now < back and servers:
                servers.pop().close()
            elif cloud.now >= back and not servers:
                servers.append(Server(cloud, port=server.port))

        session = connect(server.url, project="p", clock=clock, sleep=clock.sleep)
        jobs, logs = Jobs(session, "p", "us-central1"), Logs(session, "p")
        return JobFollower(jobs, logs, cloud.job(), clock=clock, sleep=sleep)

    yield run
    for server in servers:
        server.close()


def test_an_emulator_that_has_stopped_ends_it(follow_until_stopped, clock):
    cloud = Cloud(clock, RUN)
    with pytest.raises(
        GoogleError,
        match=r"^http://127\.0\.0\.1:[0-9]+ has refused connections for 12 s: "
        "the emulator has stopped, and the job with it$",
    ):
        list(follow_until_stopped(cloud, stops=100))
    assert 110 < cloud.now < 130


def test_an_emulator_that_restarts_is_waited_for(follow_until_stopped, clock):
    cloud = Cloud(clock, RUN | ended("SUCCEEDED", 300), lines(every=50, until=290))
    events = list(follow_until_stopped(cloud, stops=100, back=108))
    assert states(events)[-1][0] == "SUCCEEDED"
    assert sorted(texts(events)) == sorted(text for _, text, _, _ in cloud.lines)


def test_an_emulator_that_stops_after_the_job_leaves_its_state(follow_until_stopped, clock):
    cloud = Cloud(clock, RUN | ended("FAILED", 96))
    events = list(follow_until_stopped(cloud, stops=104))
    assert states(events)[-1][0] == "FAILED"
    assert cloud.now < 130
