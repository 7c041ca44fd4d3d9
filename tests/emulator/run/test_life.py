"""The lives of jobs, on machines that do as they are told."""

from __future__ import annotations

import threading
from collections import defaultdict, deque

import pytest

from distlaunch.emulator.run.running import START_ERROR, CannotRun, Ended

from .jobs import custom_job, jobs_on, pool


class Told:
    """Machines whose replicas end with the codes that they are told to, one start after another.

    A replica that has no code left runs until it is stopped, or until `end`.
    """

    def __init__(self, **codes) -> None:
        self.codes = defaultdict(deque, {n.replace("_", "-"): deque(c) for n, c in codes.items()})
        self.started = []
        self.open = 0
        self.problem = ""
        self.running = {}
        self.makes_ready = threading.Event()
        self.makes_ready.set()

    def site(self, work, is_wanted):
        while not self.makes_ready.wait(0.01):
            if not is_wanted():
                raise CannotRun("not wanted")
        if self.problem:
            raise CannotRun(self.problem)
        self.open += 1
        return ToldSite(self)

    def close(self):
        assert self.open == 0

    def end(self, name, code, **more):
        self.running[name].end(Ended(code, **more))


class ToldSite:
    def __init__(self, machines) -> None:
        self.machines = machines

    def start(self, replica, write, ended):
        self.machines.started.append(replica.name)
        running = self.machines.running[replica.name] = ToldReplica(write, ended)
        codes = self.machines.codes[replica.name]
        if codes:
            running.end(Ended(codes.popleft()))
        return running

    def measurements(self):
        return ""

    def close(self):
        self.machines.open -= 1


class ToldReplica:
    def __init__(self, write, ended) -> None:
        self.write = write
        self.ended = ended
        self.stops = []
        self.lock = threading.Lock()

    def end(self, how):
        with self.lock:
            ended, self.ended = self.ended, None
        if ended:
            self.write("INFO", "out")
            self.write("ERROR", "Traceback")
            ended(how)

    def stop(self, grace):
        self.stops.append(grace)
        self.end(Ended(143))


ALONE = custom_job(pool())
THREE = custom_job(pool(), pool(count=2))


def test_a_job_goes_through_its_states_and_is_done_when_its_primary_replica_is():
    machines = Told()
    with jobs_on(machines, queued=0.2, pending=0.2, grace=1.0) as jobs:
        name = jobs.begin(THREE)
        assert jobs.state(name) == "QUEUED"
        jobs.wait(name, "PENDING")
        assert "startTime" not in jobs.wait(name, "PENDING")
        job = jobs.wait(name, "RUNNING")
        assert job["createTime"] < job["startTime"] <= job["updateTime"]
        assert "endTime" not in job
        workers = [machines.running[f"workerpool1-{index}"] for index in (0, 1)]
        machines.end("workerpool0-0", 0)
        job = jobs.wait(name)
        assert job["state"] == "JOB_STATE_SUCCEEDED"
        assert job["startTime"] < job["endTime"]
        assert "error" not in job
        assert [worker.stops for worker in workers] == [[1.0], [1.0]]
        assert jobs.texts(name, "service")[-1] == "Job completed successfully."
        assert jobs.lines(name, "workerpool0-0") == [
            ("workerpool0-0", "INFO", "out"),
            ("workerpool0-0", "ERROR", "Traceback"),
        ]


def test_a_worker_that_is_done_ends_nothing():
    machines = Told(workerpool1_0=[0])
    with jobs_on(machines) as jobs:
        name = jobs.begin(THREE)
        jobs.wait_for_line(name, "Job is running.")
        assert jobs.state(name) == "RUNNING"
        machines.end("workerpool0-0", 0)
        assert jobs.wait(name)["state"] == "JOB_STATE_SUCCEEDED"
    assert sorted(machines.started) == ["workerpool0-0", "workerpool1-0", "workerpool1-1"]


def test_a_program_s_error_fails_the_job_in_vertex_ai_s_words_some_moments_later():
    machines = Told()
    with jobs_on(machines, error=0.3) as jobs:
        name = jobs.begin(THREE)
        jobs.wait(name, "RUNNING")
        machines.end("workerpool1-1", 7)
        job = jobs.wait(name, "FAILED")
        assert "error" not in job
        assert "endTime" in job
        error = jobs.wait(name)["error"]
        assert error["code"] == 3
        first, quoted, blank, last = error["message"].split("\n")
        assert first == (
            "The replica workerpool1-1 exited with a non-zero status of 7. "
            "Termination reason: Error. "
        )
        assert (quoted, blank) == ("Traceback", "")
        number = name.rpartition("/")[2]
        assert last.startswith("To find out more about why your job exited please check the logs: ")
        assert f"ml_job%2Fjob_id%2F{number}&" in last
        assert jobs.lines(name, "service")[-2:] == [
            ("service", "ERROR", error["message"]),
            ("service", "INFO", "Job failed."),
        ]


def test_want_of_memory_and_what_cannot_start_are_told_as_such():
    machines = Told(workerpool0_0=[START_ERROR])
    with jobs_on(machines) as jobs:
        _, job = jobs.run(ALONE)
        assert "status of 128. Termination reason: StartError. \n" in job["error"]["message"]
        name = jobs.begin(ALONE)
        jobs.wait(name, "RUNNING")
        machines.end("workerpool0-0", 137, out_of_memory=True)
        message = jobs.wait(name)["error"]["message"]
    assert message.startswith(
        "The replica workerpool0-0 ran out of memory and exited with a non-zero status of 137. "
    )


def test_a_lost_worker_is_restarted_alone():
    machines = Told(workerpool1_0=[137, 143])
    with jobs_on(machines) as jobs:
        name = jobs.begin(THREE)
        jobs.wait_for_line(name, "Restarting workerpool1-0, which ended with 143.")
        machines.end("workerpool0-0", 0)
        assert jobs.wait(name)["state"] == "JOB_STATE_SUCCEEDED"
    assert machines.started == [
        "workerpool0-0",
        "workerpool1-0",
        "workerpool1-1",
        "workerpool1-0",
        "workerpool1-0",
    ]


@pytest.mark.parametrize(
    ("codes", "scheduling", "starts"),
    [
        ([134, 6, 11, 139], {}, 4),
        ([137] * 24, {}, 24),
        ([137] * 4, {"restartJobOnWorkerRestart": True}, 4),
        ([137], {"disableRetries": True}, 1),
        ([7], {"restartJobOnWorkerRestart": True}, 1),
    ],
)
def test_restarts_end_with_the_job_s_failure(codes, scheduling, starts):
    machines = Told(workerpool0_0=codes)
    with jobs_on(machines) as jobs:
        _, job = jobs.run(custom_job(pool(), scheduling=scheduling))
    assert job["state"] == "JOB_STATE_FAILED"
    assert f"exited with a non-zero status of {codes[-1]}." in job["error"]["message"]
    assert machines.started == ["workerpool0-0"] * starts


def test_a_restart_of_the_job_stops_all_and_starts_all():
    machines = Told(workerpool1_0=[139])
    with jobs_on(machines) as jobs:
        name = jobs.begin(THREE)
        jobs.wait_for_line(name, "Restarting the job: workerpool1-0 ended with 139.")
        jobs.wait(name, "RUNNING")
        machines.end("workerpool0-0", 0)
        assert jobs.wait(name)["state"] == "JOB_STATE_SUCCEEDED"
    assert machines.started == ["workerpool0-0", "workerpool1-0", "workerpool1-1"] * 2


def test_what_cannot_be_made_ready_fails_with_the_reason():
    machines = Told()
    machines.problem = 'Failed to pull image "image": not found'
    with jobs_on(machines) as jobs:
        _, job = jobs.run(ALONE)
    assert job["state"] == "JOB_STATE_FAILED"
    assert job["error"] == {"code": 3, "message": machines.problem}
    assert "startTime" not in job


def test_a_job_that_takes_too_long_is_cancelled():
    machines = Told()
    with jobs_on(machines) as jobs:
        _, job = jobs.run(custom_job(pool(), scheduling={"timeout": "0.2s"}))
    assert job["state"] == "JOB_STATE_CANCELLED"
    assert job["error"]["code"] == 4
    assert "scheduling.timeout" in job["error"]["message"]


def test_a_cancelled_job_is_cancelling_until_all_replicas_have_ended():
    machines = Told()
    with jobs_on(machines, grace=2.5) as jobs:
        name = jobs.begin(THREE)
        jobs.wait(name, "RUNNING")
        replicas = list(machines.running.values())
        replicas[0].lock.acquire()  # it takes its time
        jobs.lives.cancel(name)
        assert jobs.state(name) == "CANCELLING"
        replicas[0].lock.release()
        job = jobs.wait(name)
        assert job["state"] == "JOB_STATE_CANCELLED"
        assert job["error"] == {"code": 1, "message": "CANCELED"}
        assert [replica.stops for replica in replicas] == [[2.5]] * 3
        jobs.lives.cancel(name)
        assert jobs.state(name) == "CANCELLED"


@pytest.mark.parametrize("state", ["QUEUED", "PENDING"])
def test_a_job_can_be_cancelled_before_it_runs(state):
    machines = Told()
    with jobs_on(machines, queued=0.3, pending=0.3) as jobs:
        name = jobs.begin(ALONE)
        jobs.wait(name, state)
        jobs.lives.cancel(name)
        assert jobs.state(name) == "CANCELLING"
        job = jobs.wait(name)
    assert job["state"] == "JOB_STATE_CANCELLED"
    assert "startTime" not in job
    assert machines.started == []


def test_a_job_can_be_cancelled_while_its_machines_are_made_ready():
    machines = Told()
    machines.makes_ready.clear()
    with jobs_on(machines) as jobs:
        name = jobs.begin(ALONE)
        jobs.wait(name, "PENDING")
        jobs.lives.cancel(name)
        assert jobs.wait(name)["state"] == "JOB_STATE_CANCELLED"
    assert machines.started == []


def test_a_job_can_expire_in_the_queue():
    machines = Told()
    with jobs_on(machines, expires=True) as jobs:
        name, job = jobs.run(ALONE)
        assert job["state"] == "JOB_STATE_EXPIRED"
        assert job["error"]["code"] == 4
        jobs.lives.cancel(name)
        assert jobs.state(name) == "EXPIRED"
    assert machines.started == []


def test_the_emulator_s_end_leaves_nothing_running():
    machines = Told()
    with jobs_on(machines) as jobs:
        name = jobs.begin(THREE)
        jobs.wait(name, "RUNNING")
    assert machines.open == 0
    assert [replica.stops[0] for replica in machines.running.values()] == [0.0] * 3


def test_a_fault_of_the_machines_ends_one_job_and_no_other(caplog):
    machines = Told()
    with jobs_on(machines) as jobs:
        name = jobs.begin(ALONE)
        jobs.wait(name, "RUNNING")
        machines.site = lambda *_: 1 / 0
        _, job = jobs.run(ALONE)
        assert job["state"] == "JOB_STATE_FAILED"
        assert job["error"] == {"code": 13, "message": "Internal error occurred."}
        machines.end("workerpool0-0", 0)
        assert jobs.wait(name)["state"] == "JOB_STATE_SUCCEEDED"
    assert "ZeroDivisionError" in caplog.text


def test_a_job_that_was_deleted_as_it_began_is_none():
    machines = Told()
    with jobs_on(machines) as jobs:
        jobs.lives.begin("projects/1/locations/r/customJobs/2")
        jobs.lives.cancel("projects/1/locations/r/customJobs/2")
    assert machines.started == []
