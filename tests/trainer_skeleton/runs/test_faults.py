"""Kills, stops and freezes: the weights are those of an undisturbed run, and few steps are lost.

`make laws` kills at 20 steps of the run, on clusters of two sizes.
"""

import os
from dataclasses import replace

import numpy as np
import pytest

from .conftest import REGRESSION_DATA, REGRESSION_MODEL, SETTINGS, weights

pytestmark = pytest.mark.slow

EVERY, STEPS = 4, 33

# Signals its own process exactly at a step, once in a job.
FAULT = """
import json, os, pathlib

class Fault(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        task = json.loads(os.environ["TF_CONFIG"])["task"]
        wanted, step, number, _ = os.environ["FAULT"].split("@")
        is_due = self.model.optimizer.iterations == int(step)
        marker = pathlib.Path(os.environ["FAULT"] + ".done")
        if is_due and f"{task['type']}{task['index']}" == wanted and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), int(number))

    def get_state(self):
        return None

    def set_state(self, state):
        pass

def callbacks():
    return [Fault()]
"""

# The third checkpoint's values are half written when the chief is killed.
KILL_IN_WRITE = """
import os, pathlib
from trainer.distributed import saving

class Killed(saving._Summed):
    written = 0

    def write(self, data):
        Killed.written += len(data)
        if Killed.written > int(os.environ["BYTES"]) and not pathlib.Path("killed").exists():
            pathlib.Path("killed").touch()
            os.kill(os.getpid(), 9)
        return super().write(data)

saving._Summed = Killed
"""


@pytest.fixture(scope="module")
def faulty(new_project):
    """A project whose tasks signal themselves as the environment variable FAULT requests."""
    project = new_project()
    project.write("trainer/model.py", REGRESSION_MODEL + FAULT)
    project.write("trainer/data.py", REGRESSION_DATA)
    return project


def run_with_fault(project, job, workers, fault, *launcher):
    """Run with a fault; return the result, and the steps that were done before it."""
    with_fault = replace(project, environment={"FAULT": f"{fault}@{job}"})
    result = with_fault.local(job, "--workers", str(workers), *launcher, "--", *SETTINGS)
    steps = [
        event["step"]
        for path in (project.folder / job / "task-logs/attempt-1").glob("*.events.jsonl")
        for event in project.events(job, path.name.removesuffix(".events.jsonl"))
        if event["event"] == "step"
    ]
    return result, max(steps)


def assert_same_result(project, job, expected, done):
    summary = project.summary(job)
    assert summary["steps"] == STEPS
    assert 0 <= done - (summary["resumed_from"] or 0) <= EVERY
    np.testing.assert_allclose(weights(project, job), expected, rtol=0, atol=1e-9)


# The chief is killed in the middle of a write, below.
KILLS, STOPPED = [(2, "worker0", 9)], ["chief0"]
if os.environ.get("DISTLAUNCH_TEST_LAWS"):  # make laws
    SPREAD = sorted({1 + round(n * (STEPS - 1) / 19) for n in range(20)})
    KILLS = [
        (workers, task, step)
        for workers, tasks in {2: ("chief0", "worker0"), 3: ("chief0", "worker1")}.items()
        for task in tasks
        for step in SPREAD
    ]
    STOPPED = ["chief0", "worker0"]


@pytest.mark.parametrize(("workers", "task", "step"), KILLS)
def test_kill_costs_no_more_than_the_interval(faulty, one_worker, workers, task, step):
    job = f"kill-{workers}-{task}-{step}"
    result, done = run_with_fault(faulty, job, workers, f"{task}@{step}@9", "--restarts", "1")
    assert result.code == 0, result.text
    assert faulty.summary(job)["restarts"] == 1
    assert done == step
    assert_same_result(faulty, job, one_worker[0], done)


def test_frozen_task_is_restarted(faulty, one_worker):
    result, done = run_with_fault(faulty, "frozen", 2, "worker0@14@19", "--restarts", "1")
    assert result.code == 0, result.text
    assert "worker:0 is frozen (SIGSTOP)" in result.text
    assert_same_result(faulty, "frozen", one_worker[0], done)


@pytest.mark.parametrize("task", STOPPED)
def test_sigterm_to_one_task_has_all_leave(faulty, one_worker, task):
    job = f"stopped-{task}"
    result, done = run_with_fault(faulty, job, 2, f"{task}@14@15")
    assert result.code == 143, result.text
    assert "stopped by a signal: saved at step 14" in result.text
    for name in ("chief", "worker-0"):
        assert [e["step"] for e in faulty.events(job, name) if e["event"] == "step"][-1] == 14
    again, _ = run_with_fault(faulty, job, 2, f"{task}@14@15")
    assert again.code == 0, again.text
    assert faulty.summary(job)["resumed_from"] == 14
    np.testing.assert_allclose(weights(faulty, job), one_worker[0], rtol=0, atol=1e-9)
    assert done == 14


def test_kill_in_the_middle_of_a_checkpoints_write(regression, one_worker, new_project):
    size = min(path.stat().st_size for path in (regression.folder / "one").rglob("values.npz"))
    project = new_project()
    project.write("trainer/model.py", REGRESSION_MODEL + KILL_IN_WRITE)
    project.write("trainer/data.py", REGRESSION_DATA)
    with_fault = replace(project, environment={"BYTES": str(int(2.5 * size))})
    options = ("--workers", "2", "--restarts", "1", "--", *SETTINGS)
    result = with_fault.local("job", *options)
    assert result.code == 0, result.text
    summary = project.summary("job")
    assert summary["restarts"] == 1
    assert summary["resumed_from"] == 8
    np.testing.assert_allclose(weights(project, "job"), one_worker[0], rtol=0, atol=1e-9)


def test_four_workers_then_three_past_a_damaged_checkpoint(regression, one_worker):
    options = ("--", *SETTINGS)
    first = regression.local("moved", "--workers", "4", *options, "--epochs=2")
    assert first.code == 0, first.text
    newest = max((regression.folder / "moved/checkpoints").iterdir())
    values = newest / "values.npz"
    values.write_bytes(values.read_bytes()[:-100])

    second = regression.local("moved", "--workers", "3", *options)

    assert second.code == 0, second.text
    assert f"the checkpoint {newest} is damaged" in second.text
    assert regression.summary("moved")["resumed_from"] == 20
    np.testing.assert_allclose(weights(regression, "moved"), one_worker[0], rtol=0, atol=1e-9)
    refused = regression.local("moved", "--workers", "5", *options)
    assert refused.code == 1
    assert "5 replicas do not divide the 12 logical shards: use 1, 2, 3, 4, 6, 12" in refused.text
