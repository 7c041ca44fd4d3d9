"""What follows a failure, by Vertex AI's documented rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.emulator.run.restarts import JOB_RESTARTS, REPLICA_RESTARTS, Next, Restarts
from distlaunch.emulator.run.running import Ended
from distlaunch.emulator.run.work import Scheduling
from distlaunch.job.model import Task

CHIEF, WORKER = Task("chief"), Task("worker", 0)
TRANSIENT = (6, 134, 11, 139)


@given(st.integers(1, 128).filter(lambda code: code not in TRANSIENT))
def test_a_program_s_own_error_is_permanent(code):
    assert Restarts(Scheduling()).after(CHIEF, Ended(code)) is Next.FAIL


@pytest.mark.parametrize("code", TRANSIENT)
def test_aborts_and_segmentation_faults_restart_the_job_three_times(code):
    restarts = Restarts(Scheduling())
    told = [restarts.after(WORKER, Ended(code)) for _ in range(JOB_RESTARTS + 1)]
    assert told == [Next.RESTART_JOB] * JOB_RESTARTS + [Next.FAIL]


def test_a_replica_that_is_lost_is_restarted_five_times_and_then_the_job_three_times():
    restarts = Restarts(Scheduling())
    told = []
    while Next.FAIL not in told:
        told.append(restarts.after(WORKER, Ended(137)))
    once = [Next.RESTART_REPLICA] * REPLICA_RESTARTS
    assert told == [*([*once, Next.RESTART_JOB] * JOB_RESTARTS), *once, Next.FAIL]


def test_each_replica_has_restarts_of_its_own():
    restarts = Restarts(Scheduling())
    for task in [CHIEF, WORKER] * REPLICA_RESTARTS:
        assert restarts.after(task, Ended(143)) is Next.RESTART_REPLICA
    assert restarts.after(CHIEF, Ended(143)) is Next.RESTART_JOB


def test_want_of_memory_is_permanent():
    assert Restarts(Scheduling()).after(CHIEF, Ended(137, out_of_memory=True)) is Next.FAIL


def test_the_whole_job_is_restarted_where_that_is_asked_for():
    restarts = Restarts(Scheduling(restarts_whole_job=True))
    told = [restarts.after(WORKER, Ended(137)) for _ in range(JOB_RESTARTS + 1)]
    assert told == [Next.RESTART_JOB] * JOB_RESTARTS + [Next.FAIL]


@given(st.integers(1, 255), st.booleans())
def test_nothing_is_restarted_without_retries(code, out_of_memory):
    restarts = Restarts(Scheduling(retries=False))
    assert restarts.after(CHIEF, Ended(code, out_of_memory)) is Next.FAIL
