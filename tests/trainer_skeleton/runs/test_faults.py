"""The law of kills: whatever strikes a task, the weights end as if nothing had, and little is lost.

`make laws` strikes at 20 steps of the run, on clusters of two sizes.
"""

import os
from dataclasses import replace

import numpy as np
import pytest

from .conftest import REGRESSION_DATA, REGRESSION_MODEL
from .test_promises import SETTINGS, weights

pytestmark = pytest.mark.slow

EVERY, STEPS = 4, 33

# Strikes its own process exactly at a step, once in a job.
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
def undisturbed(new_project):
    """A project, and the weights that one worker ends with."""
    project = new_project()
    project.write("trainer/model.py", REGRESSION_MODEL)
    project.write("trainer/data.py", REGRESSION_DATA)
    result = project.local("one", "--workers", "1", "--", *SETTINGS)
    assert result.code == 0, result.text
    project.write("trainer/model.py", REGRESSION_MODEL + FAULT)
    return project, weights(project, "one")


def strike(project, job, workers, fault, *launcher):
    """Run with a fault; return the result, and the steps that were done when it struck."""
    struck = replace(project, environment={"FAULT": f"{fault}@{job}"})
    result = struck.local(job, "--workers", str(workers), *launcher, "--", *SETTINGS)
    steps = [
        event["step"]
        for path in (project.folder / job / "task-logs/attempt-1").glob("*.events.jsonl")
        for event in project.events(job, path.name.removesuffix(".events.jsonl"))
        if event["event"] == "step"
    ]
    return result, max(steps)


def assert_undisturbed(project, job, expected, done):
    summary = project.summary(job)
    assert summary["steps"] == STEPS
    assert 0 <= done - (summary["resumed_from"] or 0) <= EVERY
    np.testing.assert_allclose(weights(project, job), expected, rtol=0, atol=1e-9)


KILLS = [(2, "worker0", 9), (2, "chief0", 22)]
if os.environ.get("DISTLAUNCH_TEST_LAWS"):  # make laws
    SPREAD = sorted({1 + round(n * (STEPS - 1) / 19) for n in range(20)})
    KILLS = [
        (workers, task, step)
        for workers, tasks in {2: ("chief0", "worker0"), 3: ("chief0", "worker1")}.items()
        for task in tasks
        for step in SPREAD
    ]


@pytest.mark.parametrize(("workers", "task", "step"), KILLS)
def test_kill_costs_no_more_than_the_interval(undisturbed, workers, task, step):
    project, expected = undisturbed
    job = f"kill-{workers}-{task}-{step}"
    result, done = strike(project, job, workers, f"{task}@{step}@9", "--restarts", "1")
    assert result.code == 0, result.text
    assert project.summary(job)["restarts"] == 1
    assert done == step
    assert_undisturbed(project, job, expected, done)


def test_frozen_task_is_restarted(undisturbed):
    project, expected = undisturbed
    result, done = strike(project, "frozen", 2, "worker0@14@19", "--restarts", "1")
    assert result.code == 0, result.text
    assert "worker:0 is frozen (SIGSTOP)" in result.text
    assert_undisturbed(project, "frozen", expected, done)


@pytest.mark.parametrize("task", ["chief0", "worker0"])
def test_sigterm_to_one_task_has_all_leave(undisturbed, task):
    project, expected = undisturbed
    job = f"asked-{task}"
    result, done = strike(project, job, 2, f"{task}@14@15")
    assert result.code == 143, result.text
    assert "stopped by a signal: saved at step 14" in result.text
    for name in ("chief", "worker-0"):
        assert [e["step"] for e in project.events(job, name) if e["event"] == "step"][-1] == 14
    again, _ = strike(project, job, 2, f"{task}@14@15")
    assert again.code == 0, again.text
    assert project.summary(job)["resumed_from"] == 14
    np.testing.assert_allclose(weights(project, job), expected, rtol=0, atol=1e-9)
    assert done == 14


def test_kill_in_the_middle_of_a_checkpoints_write(undisturbed, new_project):
    whole, expected = undisturbed
    size = min(path.stat().st_size for path in (whole.folder / "one").rglob("values.npz"))
    project = new_project()
    project.write("trainer/model.py", REGRESSION_MODEL + KILL_IN_WRITE)
    project.write("trainer/data.py", REGRESSION_DATA)
    struck = replace(project, environment={"BYTES": str(int(2.5 * size))})
    options = ("--workers", "2", "--restarts", "1", "--", *SETTINGS)
    result = struck.local("job", *options)
    assert result.code == 0, result.text
    summary = project.summary("job")
    assert summary["restarts"] == 1
    assert summary["resumed_from"] == 8
    np.testing.assert_allclose(weights(project, "job"), expected, rtol=0, atol=1e-9)


def test_four_workers_then_two_then_one(undisturbed):
    project, expected = undisturbed
    strike_none = replace(project, environment={"FAULT": "none0@0@0@none"})
    for workers, epochs in ((4, 1), (2, 2), (1, 3)):
        options = ("--workers", str(workers), "--", *SETTINGS, f"--epochs={epochs}")
        if workers == 1:
            project.write("trainer/model.py", REGRESSION_MODEL)
        result = strike_none.local("moved", *options)
        assert result.code == 0, result.text
    project.write("trainer/model.py", REGRESSION_MODEL + FAULT)
    np.testing.assert_allclose(weights(project, "moved"), expected, rtol=0, atol=1e-9)
    refused = strike_none.local("moved", "--workers", "5", "--", *SETTINGS)
    assert refused.code == 1
    assert "5 replicas do not divide the 12 logical shards: use 1, 2, 3, 4, 6, 12" in refused.text
