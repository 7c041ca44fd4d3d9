"""The same weights on any cluster, through a kill, a stop and a damaged checkpoint."""

from dataclasses import replace

import keras
import numpy as np
import pytest

from .conftest import REGRESSION_DATA, REGRESSION_MODEL, SETTINGS, weights

pytestmark = pytest.mark.slow

# A company's proxy, through which no peer can be reached, and a backend that is not installed.
SHELL = {
    "http_proxy": "http://127.0.0.1:1",
    "https_proxy": "http://127.0.0.1:1",
    "KERAS_BACKEND": "torch",
}


def test_three_workers_end_with_one_workers_weights_and_logs(regression, one_worker):
    in_shell = replace(regression, environment=SHELL)
    result = in_shell.local("three", "--workers", "3", "--", *SETTINGS)
    assert result.code == 0, result.text
    alone, summary = one_worker
    np.testing.assert_allclose(weights(regression, "three"), alone, rtol=0, atol=1e-9)
    epochs = regression.summary("three")["epochs"]
    for epoch, expected in zip(epochs, summary["epochs"], strict=True):
        assert epoch["logs"] == pytest.approx(expected["logs"], abs=1e-6)


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


def test_two_replicas_of_one_task_end_with_one_replicas_weights(regression, one_worker):
    regression.write("two_replicas.py", TWO_REPLICAS)
    result = regression.run("two_replicas", "--job-dir=replicas", *SETTINGS)
    assert result.code == 0, result.text
    assert regression.summary("replicas")["replicas"] == 2
    np.testing.assert_allclose(weights(regression, "replicas"), one_worker[0], rtol=0, atol=1e-9)


ONE_TASK_STOPS = """
import os


class PrintLogs(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print("LOGS", epoch, sorted((name, round(value, 9)) for name, value in logs.items()))


class Stop(keras.callbacks.Callback):
    def {hook}(self, number, logs=None):
        self.model.stop_training = number == {number}


def callbacks():
    best = keras.callbacks.ModelCheckpoint("best.keras", monitor="val_loss", save_best_only=True)
    is_worker = '"type": "worker"' in os.environ["TF_CONFIG"]
    return [PrintLogs(), best, *([Stop()] if is_worker else [])]
"""


@pytest.mark.parametrize(
    ("hook", "number", "epochs", "last_step"),
    [("on_train_batch_end", 3, 1, 4), ("on_epoch_end", 1, 2, 22)],
)
def test_callbacks_get_the_same_logs_on_all_tasks_and_one_stops_all(
    project, hook, number, epochs, last_step
):
    stops = ONE_TASK_STOPS.format(hook=hook, number=number)
    project.write("trainer/model.py", REGRESSION_MODEL + stops)
    project.write("trainer/data.py", REGRESSION_DATA)
    result = project.local("job", "--workers", "2", "--", *SETTINGS)
    assert result.code == 0, result.text
    assert project.summary("job")["steps"] == last_step
    logs = {}
    for line in result.out.splitlines():
        task, _, text = line.partition(" | ")
        if text.startswith("LOGS"):
            logs.setdefault(task.strip(), []).append(text)
    assert logs["chief"] == logs["worker:0"]
    assert len(logs["chief"]) == epochs
    assert "'val_mae'" in logs["chief"][0]
    keras.models.load_model(project.folder / "best.keras")


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


def test_sigterm_during_validation_does_not_wait_for_its_end(project, one_worker):
    """The training of the epoch is saved; the resumed run validates it first."""
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
    alone, summary = one_worker
    np.testing.assert_allclose(weights(project, "job"), alone, rtol=0, atol=1e-9)
    epochs = project.summary("job")["epochs"]
    assert [epoch["epoch"] for epoch in epochs] == [1, 2, 3]
    for epoch, expected in zip(epochs, summary["epochs"], strict=True):
        assert epoch["logs"]["mae"] == pytest.approx(expected["logs"]["mae"], abs=1e-6)


ALONE = '{"cluster": {"worker": ["localhost:1"]}, "task": {"type": "worker", "index": 0}}'
END_THEN_STOP = """
class End(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = batch == 3

    def on_train_end(self, logs=None):
        print("LAST", sorted(logs))


def callbacks():
    return [End(), Stop()]
"""


def test_epoch_that_a_callback_cut_short_is_validated_after_a_resume(project):
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
