"""The same weights on one worker and on more, in one process and with GPUs missing."""

import numpy as np
import pytest

from .conftest import SETTINGS

pytestmark = pytest.mark.slow

EXPECTED = "expected 1 GPU (DISTLAUNCH_EXPECTED_GPUS), TensorFlow sees none: TensorFlow 2."


def test_three_workers_end_with_one_workers_weights_and_logs(regression, one_worker, three_workers):
    weights, summary = one_worker
    np.testing.assert_allclose(regression.weights("three"), weights, rtol=0, atol=1e-9)
    epochs = regression.summary("three")["epochs"]
    for epoch, expected in zip(epochs, summary["epochs"], strict=True):
        assert epoch["logs"] == pytest.approx(expected["logs"], abs=1e-6)


def test_tasks_without_their_gpus_train_where_that_is_allowed(three_workers):
    for task in ("chief", "worker:0", "worker:1"):
        assert f"trainer: warning: {task}: {EXPECTED}" in three_workers.out
        assert f"{task:<8} | no GPU, " in three_workers.out


# Without the launcher: the chief expects no GPU, or both tasks expect one.
EXPECTING = """
import os, sys
from trainer import task

if '"type": "worker"' in os.environ["TF_CONFIG"] or "--seed=1" in sys.argv:
    os.environ["DISTLAUNCH_EXPECTED_GPUS"] = "1"
sys.exit(task.main())
"""


@pytest.mark.parametrize(("seed", "task"), [(0, "worker:0"), (1, "chief")])
def test_tasks_without_their_gpus_stop_with_one_message(regression, seed, task):
    regression.write("expecting.py", EXPECTING)
    module = ("--set", "module=expecting")
    result = regression.local("no-gpus", "--workers", "2", *module, "--", f"--seed={seed}", code=1)
    (error,) = [line for line in result.out.splitlines() if "trainer: error: " in line]
    assert f"trainer: error: {task}: {EXPECTED}" in error
    assert error.endswith("; --allow-cpu trains anyway")


# The launcher cannot have two replicas in one task on a machine without GPUs.
TWO_REPLICAS = """
import sys
import tensorflow as tf
from trainer import task
from distlaunch_trainer import run

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
    weights, _ = one_worker
    np.testing.assert_allclose(regression.weights("replicas"), weights, rtol=0, atol=1e-9)


def test_two_tasks_with_two_devices_end_with_one_replicas_weights(regression, one_worker):
    regression.local_with_two_devices("four-replicas", "--workers", "2", "--", *SETTINGS)
    summary = regression.summary("four-replicas")
    assert (summary["tasks"], summary["replicas"]) == (["chief", "worker:0"], 4)
    weights, expected = one_worker
    np.testing.assert_allclose(regression.weights("four-replicas"), weights, rtol=0, atol=1e-9)
    for epoch, other in zip(summary["epochs"], expected["epochs"], strict=True):
        assert epoch["logs"] == pytest.approx(other["logs"], abs=1e-6)


# GPUs are CPUs here: the chief has two virtual ones.
UNEVEN = """
import os, sys
import tensorflow as tf
from trainer import task
from distlaunch_trainer import cluster, devices

cpu = tf.config.list_physical_devices("CPU")[0]
count = 2 if '"type": "chief"' in os.environ["TF_CONFIG"] else 1
virtual = [tf.config.LogicalDeviceConfiguration()] * count
tf.config.set_logical_device_configuration(cpu, virtual)
cluster.check_same_devices = lambda peers: devices.check_same_devices(peers, "CPU")
sys.exit(task.main())
"""


def test_tasks_with_different_numbers_of_devices_are_named(regression):
    regression.write("uneven.py", UNEVEN)
    # Not `local`, which may give each task two devices.
    options = ("--job-dir", "uneven", "--workers", "2", "--set", "module=uneven")
    result = regression.run("distlaunch", "local", *options)
    assert result.code == 1
    (error,) = [line for line in result.out.splitlines() if "trainer: error: " in line]
    assert "the tasks have different numbers of CPUs (chief has 2, worker:0 has 1)" in error
