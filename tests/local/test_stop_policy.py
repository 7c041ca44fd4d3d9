"""What is decided when, by a clock that the tests turn."""

from __future__ import annotations

import signal

import pytest

from distlaunch.job.tasks import Task
from distlaunch.local.stop_policy import (
    KILL_TIMEOUT,
    OUTLIVE_TIMEOUT,
    STOP_TIMEOUT,
    Done,
    Ended,
    Failure,
    Policy,
    Stopped,
)

CHIEF, WORKER, EVALUATOR = Task("chief"), Task("worker", 0), Task("evaluator", 0)
OK = Ended(0)


class Group:
    """A policy with the signals and notices it sent; its tasks have started at 0."""

    def __init__(self, *tasks: Task, **options: bool):
        self.sent: list[tuple[Task, int]] = []
        self.notices: list[str] = []
        self.policy = Policy(
            tasks,
            lambda task, number: self.sent.append((task, number)),
            lambda notice: self.notices.append(notice.text),
            **options,
        )
        for task in tasks:
            self.policy.started(task, now=0)


@pytest.fixture
def group():
    return Group(CHIEF, WORKER, EVALUATOR)


@pytest.fixture
def policy(group):
    return group.policy


def test_a_worker_that_stays_after_the_primary_is_ended_and_the_job_is_done(group, policy):
    policy.exited(CHIEF, OK, now=0)
    policy.tick(now=1)
    assert group.notices == []
    for now in (5, 6, STOP_TIMEOUT - 1):
        policy.tick(now=now)
    assert group.notices == ["chief is done; waiting for worker:0"]
    assert policy.verdict is None
    policy.tick(now=STOP_TIMEOUT)
    assert policy.verdict == Done()
    assert (WORKER, signal.SIGTERM) in group.sent
    assert policy.is_over(now=STOP_TIMEOUT + OUTLIVE_TIMEOUT)


def test_the_first_failure_stays_the_verdict_and_a_stop_shortens_the_end(group, policy):
    policy.exited(WORKER, Ended(7), now=3)
    policy.exited(CHIEF, Ended(signal=signal.SIGTERM), now=4)
    assert {task for task, _ in group.sent} == {CHIEF, WORKER, EVALUATOR}  # its descendants, too
    assert not policy.is_over(now=4)
    assert policy.is_over(now=3 + KILL_TIMEOUT)
    policy.stop(signal.SIGINT, now=4)
    assert policy.verdict == Failure(WORKER, Ended(7), seconds=3)
    assert policy.is_over(now=4)
    policy.report_killed()
    assert group.notices == []


def test_frozen_tasks_are_a_likely_cause_and_not_waited_for(policy):
    for task in (CHIEF, WORKER, EVALUATOR):
        policy.stopped(task)
    policy.continued(WORKER)
    policy.exited(WORKER, Ended(7), now=3)
    assert policy.is_over(now=3)
    assert policy.verdict.likely == ("chief is frozen (SIGSTOP)", "evaluator:0 is frozen (SIGSTOP)")


def test_a_task_that_was_never_ready_is_the_likely_cause(policy):
    policy.ready(CHIEF, now=1)
    policy.exited(CHIEF, Ended(1), now=60)
    assert policy.verdict.likely == ("never ready: worker:0",)


def test_tasks_that_are_not_ready_are_named_once(group, policy):
    policy.tick(now=100)
    policy.ready(CHIEF, now=100)
    policy.tick(now=105)
    assert group.notices == []
    policy.tick(now=110)
    policy.tick(now=120)
    assert group.notices == ["still waiting for worker:0"]


def test_a_stop_gives_time_and_a_second_one_none(group, policy):
    policy.stop(signal.SIGINT, now=10)
    assert policy.verdict == Stopped(signal.SIGINT)
    assert not policy.is_over(now=10 + STOP_TIMEOUT - 1)
    assert policy.is_over(now=10 + STOP_TIMEOUT)
    policy.exited(CHIEF, Ended(143), now=11)
    policy.report_killed()
    killed = "killed, as 30 s were not enough"
    assert group.notices == [f"worker:0: {killed}", f"evaluator:0: {killed}"]
    policy.stop(signal.SIGINT, now=12)
    assert policy.is_over(now=12)
    assert policy.is_interrupted


@pytest.mark.parametrize(
    "last",
    [
        lambda policy: policy.exited(WORKER, Ended(143), now=12),
        lambda policy: policy.stopped(WORKER),
        lambda policy: policy.stop(signal.SIGINT, now=12),
    ],
    ids=["it ends", "it is frozen", "second stop"],
)
def test_no_task_is_reported_killed_that_was_not_given_all_the_time(group, policy, last):
    policy.exited(EVALUATOR, OK, now=1)
    policy.exited(CHIEF, OK, now=3)
    policy.stop(signal.SIGINT, now=10)
    last(policy)
    assert policy.is_over(now=12)
    policy.report_killed()
    assert group.notices == []


def test_lost_output_is_no_interruption(policy):
    policy.stop_output_lost(now=10)
    assert (policy.verdict, policy.is_interrupted) == (Stopped(None), False)
    policy.stop(signal.SIGTERM, now=12)
    policy.stop_output_lost(now=13)
    assert policy.verdict == Stopped(signal.SIGTERM)
    assert not policy.is_over(now=13)
    policy.stop(signal.SIGINT, now=14)
    assert policy.verdict == Stopped(signal.SIGTERM)
    assert policy.is_over(now=14)


def test_a_task_that_starts_after_another_could_not_is_ended(group, policy):
    policy.exited(CHIEF, Ended(127, reason="no such file"), now=0)
    group.sent.clear()
    policy.started(WORKER, now=0)
    assert group.sent == [(WORKER, signal.SIGTERM)]
    assert policy.verdict.task == CHIEF


KILLED = Ended(signal=signal.SIGKILL)
WORKERS, PS = (WORKER, Task("worker", 1)), Task("ps", 0)


@pytest.fixture
def servers():
    """A cluster with two workers and a parameter server."""
    return Group(CHIEF, *WORKERS, PS)


def test_with_parameter_servers_one_worker_is_enough(servers):
    servers.policy.exited(WORKERS[1], KILLED, now=1)
    assert servers.policy.verdict is None
    assert servers.notices == [f"worker:1 {KILLED}; the job continues without it"]
    servers.policy.exited(WORKERS[0], KILLED, now=2)
    assert servers.policy.verdict.task == WORKERS[0]


@pytest.mark.parametrize(("task", "ended"), [(WORKER, Ended(1)), (PS, KILLED)])
def test_with_parameter_servers_other_failures_fail_the_job(servers, task, ended):
    servers.policy.exited(task, ended, now=1)
    assert servers.policy.verdict.task == task


def test_workers_of_parameter_servers_are_terminated_when_the_chief_is_done(servers):
    servers.policy.exited(CHIEF, OK, now=1)
    assert servers.policy.verdict == Done()
    assert {(task, signal.SIGTERM) for task in (*WORKERS, PS)} <= set(servers.sent)


@pytest.mark.parametrize("can_restart", [False, True])
def test_a_killed_evaluator_fails_the_job_only_to_restart_it(can_restart):
    policy = Group(CHIEF, EVALUATOR, can_restart=can_restart).policy
    policy.exited(EVALUATOR, KILLED, now=1)
    assert (policy.verdict is not None) == can_restart
