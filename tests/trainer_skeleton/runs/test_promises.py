"""The same weights on one worker and on more, in one process and with GPUs missing."""

import numpy as np
import pytest

from .conftest import LAWS, SETTINGS, TWO_DEVICES

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
        # Virtual devices are in place of the GPUs.
        assert (f"trainer: warning: {task}: {EXPECTED}" in three_workers.out) != TWO_DEVICES
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


@pytest.mark.parametrize(
    ("options", "args", "tasks"),
    [
        (("--workers", "1", "--devices", "4"), ("--cross-device-ops=hierarchical-copy",), 1),
        *([(("--workers", "2", "--devices", "2"), (), 2)] if LAWS else []),
        *([(("--workers", "4"), (), 4)] if LAWS else []),
    ],
)
def test_four_replicas_end_with_one_replicas_weights(regression, one_worker, options, args, tasks):
    job = f"four-on-{tasks}"
    folder = ("--job-dir", regression.job_dir(job))
    result = regression.run("distlaunch", "local", *folder, *options, "--", *SETTINGS, *args)
    assert result.code == 0, result.text
    name = "mirrored, 4 replicas\n" if tasks == 1 else f"multi-worker, 4 replicas on {tasks} tasks"
    assert f"strategy: {name}" in result.out
    summary = regression.summary(job)
    assert (len(summary["tasks"]), summary["replicas"]) == (tasks, 4)
    weights, expected = one_worker
    np.testing.assert_allclose(regression.weights(job), weights, rtol=0, atol=1e-9)
    for epoch, other in zip(summary["epochs"], expected["epochs"], strict=True):
        assert epoch["logs"] == pytest.approx(other["logs"], abs=1e-6)


if LAWS:

    def test_one_of_several_devices_ends_with_the_same_weights(regression, one_worker):
        options = ("--strategy=one-device", *SETTINGS)
        env = {"DISTLAUNCH_DEVICES": "2"}
        result = regression.trainer(
            f"--job-dir={regression.job_dir('one-device')}", *options, **env
        )
        assert "strategy: one-device, 1 replica\n" in result.out
        np.testing.assert_allclose(
            regression.weights("one-device"), one_worker[0], rtol=0, atol=1e-9
        )


UNEVEN = """
import os, sys
from trainer import task

if '"type": "chief"' in os.environ["TF_CONFIG"]:
    os.environ["DISTLAUNCH_DEVICES"] = "2"
sys.exit(task.main())
"""


def test_tasks_with_different_numbers_of_devices_are_named(regression):
    regression.write("uneven.py", UNEVEN)
    # Not Project.local, which may give each task two devices.
    options = ("--job-dir", "uneven", "--workers", "2", "--set", "module=uneven")
    result = regression.run("distlaunch", "local", *options)
    assert result.code == 1
    (error,) = [line for line in result.out.splitlines() if "trainer: error: " in line]
    assert "the tasks have different numbers of CPUs (chief has 2, worker:0 has 1)" in error
