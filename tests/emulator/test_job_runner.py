"""States, failures, restarts and cancellation of jobs, on a backend without programs."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from distlaunch.emulator.job_runner import Timings, read_faults
from distlaunch.emulator.replica_group import ExitStatus
from distlaunch.errors import DistlaunchError, UsageError
from distlaunch.timestamps import seconds_between

from .jobs import custom_job, jobs_on, pool


class FakeBackend:
    """A backend whose replicas exit with given codes, one start after another.

    A replica without codes runs until it is stopped, or until `end`.
    """

    def __init__(self, **codes) -> None:
        self.codes = {name.replace("_", "-"): list(codes[name]) for name in codes}
        self.started = []
        self.open_environments = 0
        self.problem = None
        self.replicas = {}
        self.can_prepare = threading.Event()
        self.can_prepare.set()

    def prepare(self, workload, token):
        while not self.can_prepare.wait(0.01):
            if token.is_set():
                raise DistlaunchError("cancelled")
        if self.problem:
            raise self.problem
        self.open_environments += 1
        return SimpleNamespace(start=self.start, metrics=str, close=self.close_environment)

    def start(self, replica, write, on_exit):
        self.started.append(replica.name)
        running = self.replicas[replica.name] = FakeReplica(write, on_exit)
        if self.codes.get(replica.name):
            running.end(self.codes[replica.name].pop(0))
        return running

    def end(self, name, code, **status):
        self.replicas[name].end(code, **status)

    def close_environment(self):
        self.open_environments -= 1

    def close(self):
        assert self.open_environments == 0


class FakeReplica:
    def __init__(self, write, on_exit) -> None:
        self.write = write
        self.on_exit = on_exit
        self.kills = []
        self.is_stubborn = False
        self.lock = threading.Lock()

    def end(self, code, **status):
        with self.lock:
            on_exit, self.on_exit = self.on_exit, None
        if on_exit:
            self.write("INFO", "out")
            self.write("ERROR", "Traceback")
            on_exit(ExitStatus(code, **status))

    def stop(self, *, kill):
        self.kills.append(kill)
        if kill or not self.is_stubborn:
            self.end(143)


ALONE = custom_job(pool())
THREE = custom_job(pool(), pool(count=2))
NAMES = ["workerpool0-0", "workerpool1-0", "workerpool1-1"]


def test_a_job_moves_through_its_states_and_succeeds_with_its_primary_replica():
    backend = FakeBackend(workerpool1_0=[0])
    backend.can_prepare.clear()
    with jobs_on(backend) as jobs:
        name = jobs.start(THREE, "PENDING")
        assert "startTime" not in jobs.store.get(name)
        backend.can_prepare.set()
        assert "endTime" not in jobs.wait(name, "RUNNING")
        backend.end("workerpool0-0", 0)
        job = jobs.wait(name)
        assert job["state"] == "JOB_STATE_SUCCEEDED"
        assert job["createTime"] < job["startTime"] < job["endTime"]
        assert backend.replicas["workerpool1-1"].kills == [False]
        assert jobs.texts(name, "service")[-1] == "Job completed successfully."
        assert jobs.lines(name) == [("INFO", "out"), ("ERROR", "Traceback")]


def test_a_failure_is_reported_in_vertex_ai_s_words_after_some_time():
    with jobs_on(FakeBackend(workerpool1_1=[7]), error=0.3) as jobs:
        name, job = jobs.run(THREE)
        message = job["error"]["message"]
        assert jobs.lines(name, "service")[-2:] == [("ERROR", message), ("INFO", "Job failed.")]
    assert seconds_between(job["endTime"], job["updateTime"]) >= 0.3
    assert job["error"]["code"] == 3
    assert message.startswith(
        "The replica workerpool1-1 exited with a non-zero status of 7. "
        "Termination reason: Error. \nTraceback\n\n"
        "To find out more about why your job exited please check the logs: https://"
    )
    assert message.endswith(f"ml_job%2Fjob_id%2F{name.rpartition('/')[2]}")


def test_a_lack_of_memory_is_no_lost_replica():
    backend = FakeBackend()
    with jobs_on(backend) as jobs:
        name = jobs.start(ALONE, "RUNNING")
        backend.end("workerpool0-0", 137, out_of_memory=True)
        assert "workerpool0-0 ran out of memory and " in jobs.wait(name)["error"]["message"]


@pytest.mark.parametrize(
    ("code", "line", "restarted"),
    [
        (143, "Restarting workerpool1-0, which ended with 143.", ["workerpool1-0"]),
        (139, "Restarting the job: workerpool1-0 ended with 139.", NAMES),
    ],
)
def test_a_lost_replica_is_restarted_alone_and_a_crash_restarts_the_job(code, line, restarted):
    backend = FakeBackend(workerpool1_0=[code])
    with jobs_on(backend) as jobs:
        name = jobs.start(THREE)
        jobs.wait_for_line(name, line)
        jobs.wait_until(lambda: backend.started == NAMES + restarted)
        backend.end("workerpool0-0", 0)
        assert jobs.wait(name)["state"] == "JOB_STATE_SUCCEEDED"


@pytest.mark.parametrize(
    ("codes", "scheduling", "starts"),
    [
        ([1], {}, 1),
        ([128], {}, 1),
        ([134, 6, 11, 139], {}, 4),
        ([137] * 24, {}, 24),
        ([137] * 4, {"restartJobOnWorkerRestart": True}, 4),
        ([137], {"disableRetries": True}, 1),
        ([139], {"disableRetries": True, "restartJobOnWorkerRestart": True}, 1),
    ],
)
def test_restarts_are_limited(codes, scheduling, starts):
    backend = FakeBackend(workerpool0_0=codes)
    with jobs_on(backend) as jobs:
        _, job = jobs.run(custom_job(pool(), scheduling=scheduling))
    assert job["state"] == "JOB_STATE_FAILED"
    assert f"exited with a non-zero status of {codes[-1]}." in job["error"]["message"]
    assert backend.started == ["workerpool0-0"] * starts


def test_a_cancelled_job_is_cancelling_until_all_replicas_have_ended():
    backend = FakeBackend()
    with jobs_on(backend, grace=0.1) as jobs:
        name = jobs.start(THREE, "RUNNING")
        backend.replicas["workerpool0-0"].is_stubborn = True
        with backend.replicas["workerpool0-0"].lock:  # it cannot end
            jobs.runner.cancel(name)
            assert jobs.state(name) == "CANCELLING"
        job = jobs.wait(name)
        jobs.runner.cancel(name)
        assert jobs.state(name) == "CANCELLED"
    assert job["error"] == {"code": 1, "message": "CANCELED"}
    kills = [replica.kills for replica in backend.replicas.values()]
    assert kills == [[False, True], [False], [False]]


@pytest.mark.parametrize(("state", "seconds"), [("QUEUED", 600.0), ("PENDING", 0.0)])
def test_a_job_can_be_cancelled_before_it_runs(state, seconds):
    backend = FakeBackend()
    backend.can_prepare.clear()
    with jobs_on(backend, states=seconds) as jobs:
        name = jobs.start(ALONE, state)
        jobs.runner.cancel(name)
        job = jobs.wait(name)
    assert (job["state"], "startTime" in job) == ("JOB_STATE_CANCELLED", False)
    assert backend.started == []


def test_a_job_that_takes_too_long_is_ended():
    with jobs_on(FakeBackend()) as jobs:
        name, job = jobs.run(custom_job(pool(), scheduling={"timeout": "0.1s"}))
        jobs.runner.cancel(name)
        assert jobs.state(name) == "CANCELLED"
    assert job["error"]["code"] == 4
    assert "ran longer than its scheduling.timeout" in job["error"]["message"]


@pytest.mark.parametrize(
    ("text", "timings"),
    [
        ("", Timings()),
        ("slow-states", Timings(5.0)),
        (
            "stockout:us-east4,no-start, stockout:n1-standard-4,slow-states:2.5",
            Timings(
                2.5, stockouts=frozenset({"us-east4", "n1-standard-4"}), stalls=frozenset({""})
            ),
        ),
    ],
)
def test_faults_are_read(text, timings):
    assert read_faults(text) == timings


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("bogus", "no such fault"),
        ("slow-sates", "no such fault; did you mean 'slow-states'?"),
        ("slow-states:-1", "expected NAME or NAME:NUMBER"),
        ("stockout:mars", "expected NAME, NAME:REGION or NAME:MACHINE"),
    ],
)
def test_what_is_not_a_fault_is_refused(fault, reason):
    with pytest.raises(UsageError) as problem:
        read_faults(f"no-start,{fault}")
    assert str(problem.value) == f"--faults: {fault!r}: {reason} (see 'distlaunch emulator --help')"


def test_an_error_in_the_emulator_ends_one_job_alone(caplog):
    backend = FakeBackend()
    with jobs_on(backend) as jobs:
        name = jobs.start(ALONE, "RUNNING")
        backend.problem = ZeroDivisionError()
        _, job = jobs.run(ALONE)
        assert job["error"] == {"code": 13, "message": "Internal error occurred."}
        backend.end("workerpool0-0", 0)
        assert jobs.wait(name)["state"] == "JOB_STATE_SUCCEEDED"
    assert "ZeroDivisionError" in caplog.text
