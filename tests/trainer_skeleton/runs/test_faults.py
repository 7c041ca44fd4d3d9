"""Kills and stops: the weights are those of an undisturbed run, and few steps are lost.

`make laws` kills at 20 steps of the run, on clusters of two sizes, and freezes a task.
"""

from dataclasses import replace

import numpy as np
import pytest

from .conftest import LAWS, REGRESSION_DATA, REGRESSION_MODEL, SETTINGS

pytestmark = pytest.mark.slow

EVERY, STEPS = 4, 33

# Signals its own process exactly at a step or in a validation, once in a job.
FAULT = """
import json, os, pathlib

def task():
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    return f"{task['type']}{task['index']}"

def signal_once(name, number):
    marker = pathlib.Path(f"{name}.done")
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), number)

class Fault(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        *faults, job = os.environ["FAULT"].split()
        for wanted, step, number in (fault.split("@") for fault in faults):
            if self.model.optimizer.iterations == int(step) and wanted == task():
                signal_once(f"{wanted}-{step}-{job}", int(number))

    def get_state(self):
        return None

    def set_state(self, state):
        pass

class Rates(Fault):
    # Each step has 1/4 * 2 * 2 of the learning rate, if no hook is applied twice.
    def multiply(self, factor):
        optimizer = self.model.optimizer
        optimizer.learning_rate = float(optimizer.learning_rate) * factor

    def on_train_begin(self, logs=None):
        self.multiply(1 / 4)

    def on_epoch_begin(self, epoch, logs=None):
        self.multiply(2)

    def on_train_batch_begin(self, batch, logs=None):
        self.multiply(2)

    def on_train_batch_end(self, batch, logs=None):
        self.multiply(1 / 2)

    def on_epoch_end(self, epoch, logs=None):
        self.multiply(1 / 2)

class StopInValidation(keras.callbacks.Callback):
    def on_test_begin(self, logs=None):
        if task() == "worker0":
            signal_once("validation", 15)

class End(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = batch == 3

    def on_train_end(self, logs=None):
        print("LAST", sorted(logs))
"""

# The third checkpoint of a process is half written when the chief is killed.
KILL_IN_WRITE = """
import contextlib
import types
from distlaunch_trainer.saving import checkpoints

new_file, written = checkpoints.new_file, []

@contextlib.contextmanager
def killed_in_write(path):
    with new_file(path) as file:
        def write(data):
            written.append(len(data))
            if sum(written) > int(os.environ["BYTES"]):
                signal_once("write", 9)
            return file.write(data)
        yield types.SimpleNamespace(write=write)

checkpoints.new_file = killed_in_write
"""


def faulty_project(new_project, callbacks, more="", validation=37):
    model = f"{REGRESSION_MODEL}{FAULT}{more}\ndef callbacks():\n    return [{callbacks}]\n"
    return new_project(model, REGRESSION_DATA.replace("_arrays(37,", f"_arrays({validation},"))


def run_with_fault(project, job, workers, faults, *launcher, code=0, **environment):
    """Run with faults, each once in a job."""
    project = replace(project, environment={"FAULT": f"{faults} {job}", **environment})
    return project.local(job, "--workers", str(workers), *launcher, "--", *SETTINGS, code=code)


def steps_of(project, job, task, attempt=1):
    events = project.events(job, task, attempt)
    return [event["step"] for event in events if event["event"] == "step"]


def last_step(project, job):
    paths = (project.folder / job / "task-logs/attempt-1").glob("*.events.jsonl")
    tasks = [path.name.removesuffix(".events.jsonl") for path in paths]
    return max(max(steps_of(project, job, task)) for task in tasks)


def assert_same_weights(project, job, one_worker):
    assert project.summary(job)["steps"] == STEPS
    np.testing.assert_allclose(project.weights(job), one_worker[0], rtol=0, atol=1e-9)


@pytest.fixture(scope="module")
def disturbed(regression, one_worker, new_project):
    """A job that loses a worker at step 9 and the chief as it saves, and that is stopped twice.

    It gets SIGTERM at step 18, then in a validation, and then runs to its end.
    """
    size = min(path.stat().st_size for path in (regression.folder / "one").rglob("values.npz"))
    callbacks = "Rates(), Fault(), StopInValidation()"
    project = faulty_project(new_project, callbacks, KILL_IN_WRITE, validation=3700)
    first_validation = project.folder / "validation.done"  # passes undisturbed
    first_validation.touch()

    def run(code, *launcher):
        options = {"code": code, "BYTES": str(int(2.5 * size))}
        return run_with_fault(project, "job", 2, "worker0@9@9 worker0@18@15", *launcher, **options)

    results = [run(143, "--restarts", "2")]
    attempts = [
        [steps_of(project, "job", task, attempt) for task in ("chief", "worker-0")]
        for attempt in (1, 2, 3)
    ]
    first_validation.unlink()
    results += [run(143), run(0)]
    return project, attempts, results


def test_a_killed_worker_costs_the_steps_since_the_last_checkpoint(disturbed):
    _, (first, second, _), _ = disturbed
    assert max(map(max, first)) == 9
    assert second[0][0] == 8 + 1


def test_a_chief_killed_as_it_saves_leaves_the_checkpoint_before(disturbed):
    _, (_, second, third), _ = disturbed
    assert max(map(max, second)) == 16
    assert third[0][0] == 12 + 1


def test_sigterm_to_one_task_has_all_leave_at_one_step(disturbed):
    _, (*_, third), (at_a_step, *_) = disturbed
    assert "stopped by a signal: saved at step 18" in at_a_step.text
    assert [steps[-1] for steps in third] == [18, 18]


def test_sigterm_during_validation_does_not_wait_for_its_end(disturbed):
    """The training of the epoch is saved; the resumed run validates it first."""
    _, _, (_, in_validation, _) = disturbed
    assert "resuming after step 18" in in_validation.text
    assert "stopped by a signal: saved at step 22" in in_validation.text
    assert "epoch 2/3" not in in_validation.text


def test_weights_and_logs_after_faults_are_those_of_an_undisturbed_run(disturbed, one_worker):
    project, _, (*_, resumed) = disturbed
    assert "no checkpoint holds their state: StopInValidation" in resumed.text
    assert project.summary("job")["resumed_from"] == 22
    assert_same_weights(project, "job", one_worker)
    _, summary = one_worker
    for epoch, expected in zip(project.summary("job")["epochs"], summary["epochs"], strict=True):
        assert epoch["epoch"] == expected["epoch"]
        assert epoch["examples"] == expected["examples"]
        assert epoch["logs"]["mae"] == pytest.approx(expected["logs"]["mae"], abs=1e-6)


if LAWS:

    @pytest.fixture(scope="module")
    def faulty(new_project):
        return faulty_project(new_project, "Rates(), Fault()")

    @pytest.mark.parametrize("step", sorted({1 + round(n * (STEPS - 1) / 19) for n in range(20)}))
    @pytest.mark.parametrize(
        ("workers", "task"), [(2, "chief0"), (2, "worker0"), (3, "chief0"), (3, "worker1")]
    )
    def test_a_kill_costs_no_more_than_the_interval(faulty, one_worker, workers, task, step):
        job = f"kill-{workers}-{task}-{step}"
        run_with_fault(faulty, job, workers, f"{task}@{step}@9", "--restarts", "1")
        assert last_step(faulty, job) == step
        assert 0 <= step - (faulty.summary(job)["resumed_from"] or 0) <= EVERY
        assert_same_weights(faulty, job, one_worker)

    def test_a_frozen_task_is_restarted(faulty, one_worker):
        result = run_with_fault(faulty, "frozen", 2, "worker0@14@19", "--restarts", "1")
        assert "worker:0 is frozen (SIGSTOP)" in result.text
        assert 0 <= last_step(faulty, "frozen") - faulty.summary("frozen")["resumed_from"] <= EVERY
        assert_same_weights(faulty, "frozen", one_worker)


ALONE = '{"cluster": {"worker": ["localhost:1"]}, "task": {"type": "worker", "index": 0}}'


def test_epoch_that_a_callback_cut_short_is_validated_after_a_resume(new_project):
    """And once it is, there is nothing left to do: the model stays as it is."""
    project = faulty_project(new_project, "End(), StopInValidation()", validation=3700)
    options, role = ("--job-dir=job", *SETTINGS), {"TF_CONFIG": ALONE}
    project.trainer(*options, code=143, **role)
    resumed = project.trainer(*options, **role)
    assert "LAST ['loss', 'mae', 'val_loss', 'val_mae']" in resumed.out
    assert [epoch["step"] for epoch in project.summary("job")["epochs"]] == [4]
    saved = project.folder / "job/model/model.keras"
    before = saved.stat()
    again = project.trainer(*options, **role)
    assert "nothing is left to train, a callback ended the training" in again.err
    assert saved.stat() == before
    # A model of an earlier run, beside checkpoints of one that was killed before it saved its own.
    project.write("job/summary.json", '{"epochs": []}')
    again = project.trainer(*options, **role)
    assert "nothing is left to train" not in again.err
    assert saved.stat() != before


# Both tasks receive SIGTERM when the strategy has been created.
STOPPED = """
import os, sys
import tensorflow as tf
from trainer import task

create = tf.distribute.MultiWorkerMirroredStrategy

def create_and_stop(*arguments):
    strategy = create(*arguments)
    os.kill(os.getpid(), 15)
    return strategy

tf.distribute.MultiWorkerMirroredStrategy = create_and_stop
sys.exit(task.main())
"""


def test_sigterm_while_the_cluster_forms_ends_the_tasks(project):
    """TensorFlow's own handler, in place until the strategy is there, would drop it."""
    project.write("stopped.py", STOPPED)
    options = ("--workers", "2", "--set", "module=stopped", "--", "--epochs=1")
    result = project.local("job", *options, code=143)
    assert "trainer: stopped by a signal before the training began" in result.out
    assert not (project.folder / "job/summary.json").exists()
