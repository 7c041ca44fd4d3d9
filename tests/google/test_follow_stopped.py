"""A job is followed at an emulator that stops."""

from __future__ import annotations

import pytest

from distlaunch.errors import GoogleError
from distlaunch.google.client import connect
from distlaunch.google.follow import JobFollower
from distlaunch.google.jobs import Jobs
from distlaunch.google.logs import Logs

from .clouds import RUN, Cloud, ended, lines, states, texts
from .servers import RESET, Server


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
