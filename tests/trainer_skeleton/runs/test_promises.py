"""The same weights on any cluster, through a kill, a stop and a damaged checkpoint."""

import subprocess
import sys
import time
from dataclasses import replace

import keras
import numpy as np
import pytest

from .conftest import REGRESSION_DATA, REGRESSION_MODEL

pytestmark = pytest.mark.slow

# 121 examples in batches of 12: the last batch has one row, fewer than there are workers.
SETTINGS = ("--epochs=3", "--global-batch-size=12", "--precision=float64", "--checkpoint-every=4")


def weights(project, job):
    model = keras.models.load_model(project.folder / job / "model/model.keras")
    return np.concatenate([w.ravel() for w in model.get_weights()])


@pytest.fixture(scope="module")
def undisturbed(regression):
    """The weights that one worker ends with, and its summary."""
    result = regression.local("one", "--workers", "1", "--", *SETTINGS)
    assert result.code == 0, result.text
    return weights(regression, "one"), regression.summary("one")


# A company's proxy, through which no peer can be reached, and a backend that is not installed.
SHELL = {
    "http_proxy": "http://127.0.0.1:1",
    "https_proxy": "http://127.0.0.1:1",
    "KERAS_BACKEND": "torch",
}


@pytest.mark.parametrize("workers", [2, 3])
def test_more_workers_end_with_one_workers_weights(regression, undisturbed, workers):
    in_shell = replace(regression, environment=SHELL)
    result = in_shell.local(f"of-{workers}", "--workers", str(workers), "--", *SETTINGS)
    assert result.code == 0, result.text
    alone, summary = undisturbed
    np.testing.assert_allclose(weights(regression, f"of-{workers}"), alone, rtol=0, atol=1e-9)
    for own, others in zip(
        regression.summary(f"of-{workers}")["epochs"], summary["epochs"], strict=True
    ):
        assert own["logs"] == pytest.approx(others["logs"], abs=1e-6)


# What the launcher cannot have on a machine without GPUs: two replicas in one task.
TWO_REPLICAS = """
import sys
import tensorflow as tf
from trainer import task
from trainer.distributed import run

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
run.connect = lambda role: tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
sys.exit(task.main())
"""


def test_two_replicas_of_one_task_end_with_one_replicas_weights(regression, undisturbed):
    regression.write("two_replicas.py", TWO_REPLICAS)
    command = [sys.executable, "two_replicas.py", "--job-dir=replicas", *SETTINGS]
    done = subprocess.run(
        command, cwd=regression.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert regression.summary("replicas")["replicas"] == 2
    np.testing.assert_allclose(weights(regression, "replicas"), undisturbed[0], rtol=0, atol=1e-9)


CALLBACKS = """

class Tell(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print("LOGS", epoch, sorted((name, round(value, 9)) for name, value in logs.items()))


def callbacks():
    return [
        Tell(),
        keras.callbacks.ModelCheckpoint("best.keras", monitor="val_loss", save_best_only=True),
        keras.callbacks.EarlyStopping(monitor="loss", patience=0, min_delta=1e9),
    ]
"""


def test_callbacks_get_the_same_logs_on_every_worker_and_write_once(project):
    project.write("trainer/model.py", REGRESSION_MODEL + CALLBACKS)
    project.write("trainer/data.py", REGRESSION_DATA)
    result = project.local("job", "--workers", "2", "--", *SETTINGS, "--epochs=9")
    assert result.code == 0, result.text
    logs = {}
    for line in result.out.splitlines():
        task, _, text = line.partition(" | ")
        if text.startswith("LOGS"):
            logs.setdefault(task.strip(), []).append(text)
    assert set(logs) == {"chief", "worker:0"}
    assert logs["chief"] == logs["worker:0"]
    assert len(logs["chief"]) == 2, "EarlyStopping ends the training after the second epoch"
    assert "'val_mae'" in logs["chief"][0]
    keras.models.load_model(project.folder / "best.keras")


ONE_TASK_STOPS = """

class Stop(keras.callbacks.Callback):
    def {hook}(self, number, logs=None):
        if number == {number} and '"type": "worker"' in os.environ["TF_CONFIG"]:
            self.model.stop_training = True


def callbacks():
    return [Stop()] if '"type": "worker"' in os.environ["TF_CONFIG"] else []
"""


@pytest.mark.parametrize(
    ("hook", "number", "last_step"), [("on_train_batch_end", 3, 4), ("on_epoch_end", 1, 22)]
)
def test_callback_that_stops_one_task_stops_all(project, hook, number, last_step):
    model = "import os\n" + REGRESSION_MODEL + ONE_TASK_STOPS.format(hook=hook, number=number)
    project.write("trainer/model.py", model)
    project.write("trainer/data.py", REGRESSION_DATA)
    result = project.local("job", "--workers", "2", "--", *SETTINGS)
    assert result.code == 0, result.text
    assert project.summary("job")["steps"] == last_step


def test_killed_worker_costs_nothing_but_time(regression, undisturbed):
    result = regression.local(
        *("killed", "--workers", "2", "--restarts", "1", "--kill", "worker:0@step=17"),
        *("--", *SETTINGS, "--no-resume"),
    )
    assert result.code == 0, result.text
    assert "resuming after step" in result.out
    summary = regression.summary("killed")
    assert summary["restarts"] == 1
    # The last checkpoint before the kill may still have been on its way to the disk.
    assert summary["resumed_from"] >= 8
    assert summary["steps"] == 33
    assert len(summary["epochs"]) == 3
    np.testing.assert_allclose(weights(regression, "killed"), undisturbed[0], rtol=0, atol=1e-9)


def test_resumes_on_another_size_past_a_damaged_checkpoint(regression, undisturbed):
    """Stopped on 2 workers after epoch 1, damaged, and resumed on 3: the same weights."""
    first = regression.local("moved", "--workers", "2", "--", *SETTINGS, "--epochs=1")
    assert first.code == 0, first.text
    newest = max((regression.folder / "moved/checkpoints").iterdir())
    values = newest / "values.npz"
    values.write_bytes(values.read_bytes()[:-100])

    second = regression.local("moved", "--workers", "3", "--", *SETTINGS)

    assert second.code == 0, second.text
    assert f"the checkpoint {newest} is damaged" in second.text
    assert regression.summary("moved")["resumed_from"] == 8
    np.testing.assert_allclose(weights(regression, "moved"), undisturbed[0], rtol=0, atol=1e-9)


def test_sigterm_is_agreed_on_and_the_chief_saves(regression, undisturbed):
    """One task is asked to stop: all stop at the same step with 143, and the run goes on later."""
    long = (*SETTINGS, "--epochs=100000")
    process = regression.start(
        "local", "--job-dir", str(regression.folder / "stopped"), "--workers", "2", "--", *long
    )
    events = regression.folder / "stopped/task-logs/attempt-1/worker-0.events.jsonl"
    wait_for_step(events, process)
    process.send_signal(2)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, out + err
    saved = max((regression.folder / "stopped/checkpoints").iterdir()).name
    for task in ("chief", "worker-0"):
        steps = [e["step"] for e in regression.events("stopped", task) if e["event"] == "step"]
        assert saved == f"step-{steps[-1]:08d}"
    again = regression.local("stopped", "--workers", "2", "--", *SETTINGS, "--epochs=1")
    assert again.code == 0, again.text


CREATES = "strategy = tf.distribute.MultiWorkerMirroredStrategy(_resolver(role), options)"
STOP_WHEN_CONNECTED = f"""
            {CREATES}
            os.kill(os.getpid(), 15)
"""


def test_sigterm_while_the_cluster_forms_ends_the_tasks(project):
    """TensorFlow's own handler, in place until the strategy is there, would drop it."""
    project.replace("trainer/distributed/cluster.py", CREATES, STOP_WHEN_CONNECTED.strip())
    result = project.local("job", "--workers", "2", "--", "--epochs=1")
    assert result.code == 143, result.text
    assert "trainer: stopped by a signal before the training began" in result.out
    assert not (project.folder / "job/summary.json").exists()


STOP_IN_VALIDATION = """
import os, pathlib, signal

class Stop(keras.callbacks.Callback):
    def on_test_begin(self, logs=None):
        marker = pathlib.Path("stopped-once")
        if '"type": "worker"' in os.environ["TF_CONFIG"] and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGTERM)


def callbacks():
    return [Stop()]
"""


def test_sigterm_during_validation_does_not_wait_for_its_end(project, undisturbed):
    """The training of the epoch is saved; the run that goes on validates it first."""
    project.write("trainer/model.py", REGRESSION_MODEL + STOP_IN_VALIDATION)
    project.write("trainer/data.py", REGRESSION_DATA.replace("_arrays(37,", "_arrays(3700,"))
    options = ("--workers", "2", "--", *SETTINGS)
    stopped = project.local("job", *options)
    assert stopped.code == 143, stopped.text
    assert "stopped by a signal: saved at step 11" in stopped.text
    assert "epoch 1/3" not in stopped.text
    resumed = project.local("job", *options)
    assert resumed.code == 0, resumed.text
    assert "no checkpoint holds their state: Stop" in resumed.text
    alone, summary = undisturbed
    np.testing.assert_allclose(weights(project, "job"), alone, rtol=0, atol=1e-9)
    epochs = project.summary("job")["epochs"]
    assert [epoch["epoch"] for epoch in epochs] == [1, 2, 3]
    for own, others in zip(epochs, summary["epochs"], strict=True):
        assert own["logs"]["mae"] == pytest.approx(others["logs"]["mae"], abs=1e-6)


END_THEN_STOP = """
class End(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = batch == 3

    def on_train_end(self, logs=None):
        print("LAST", sorted(logs))


def callbacks():
    return [End(), Stop()]
"""


def test_epoch_that_a_callback_cut_short_is_validated_by_the_run_that_goes_on(project):
    """And once it is, there is nothing left to do: the model stays as it is."""
    model = REGRESSION_MODEL + STOP_IN_VALIDATION + END_THEN_STOP
    project.write("trainer/model.py", model)
    project.write("trainer/data.py", REGRESSION_DATA.replace("_arrays(37,", "_arrays(3700,"))
    options, role = ("--job-dir=job", *SETTINGS), {"TF_CONFIG": ALONE}
    stopped = project.trainer(*options, **role)
    assert stopped.code == 143, stopped.text
    resumed = project.trainer(*options, **role)
    assert resumed.code == 0, resumed.text
    assert "LAST ['loss', 'mae', 'val_loss', 'val_mae']" in resumed.out
    assert [epoch["step"] for epoch in project.summary("job")["epochs"]] == [4]
    saved = project.folder / "job/model/model.keras"
    before = saved.stat()
    again = project.trainer(*options, **role)
    assert again.code == 0, again.text
    assert "nothing is left to train, a callback ended the training" in again.err
    assert saved.stat() == before
    # A model of an earlier run, beside checkpoints of one that was killed before it saved its own.
    project.write("job/summary.json", '{"epochs": []}')
    again = project.trainer(*options, **role)
    assert again.code == 0, again.text
    assert "nothing is left to train" not in again.err
    assert saved.stat() != before


ALONE = '{"cluster": {"worker": ["localhost:1"]}, "task": {"type": "worker", "index": 0}}'


def wait_for_step(events, process):
    while not (events.exists() and '"step"' in events.read_text()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
