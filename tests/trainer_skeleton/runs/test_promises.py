"""The same weights on one worker and on more, also of a job that goes on with others."""

import shutil
import zlib

import numpy as np
import pytest

from .conftest import LAWS, SETTINGS, TWO_DEVICES

pytestmark = pytest.mark.slow

STEPS = 33


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


@pytest.mark.parametrize(("tasks", "devices"), [(1, 4), (2, 2), (4, 1)] if LAWS else [(1, 2)])
def test_replicas_of_tasks_end_with_one_replicas_weights(regression, one_worker, tasks, devices):
    job, replicas = f"{tasks}-of-{devices}", tasks * devices
    folder = ("--job-dir", regression.job_dir(job))
    options = ("--workers", str(tasks), "--devices", str(devices), "--", *SETTINGS)
    args = ("--cross-device-ops=hierarchical-copy",) if tasks == 1 else ()
    result = regression.run("distlaunch", "local", *folder, *options, *args)
    assert result.code == 0, result.text
    on_tasks = f"multi-worker, {replicas} replicas on {tasks} tasks"
    name = f"mirrored, {replicas} replicas\n" if tasks == 1 else on_tasks
    assert f"strategy: {name}" in result.out
    summary = regression.summary(job)
    assert (len(summary["tasks"]), summary["replicas"]) == (tasks, replicas)
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


def test_three_workers_then_two_past_a_damaged_checkpoint(regression, one_worker, three_workers):
    shutil.copytree(regression.folder / "three", regression.folder / "moved")
    newest = max((regression.folder / "moved/checkpoints").iterdir())
    values = newest / "values.npz"
    values.write_bytes(values.read_bytes()[:-100])
    result = regression.local("moved", "--workers", "2", "--", *SETTINGS)
    assert f"the checkpoint {newest} is damaged" in result.text
    assert regression.summary("moved")["resumed_from"] == STEPS - 1
    assert regression.summary("moved")["steps"] == STEPS
    np.testing.assert_allclose(regression.weights("moved"), one_worker[0], rtol=0, atol=1e-9)


def test_last_good_checkpoint_is_kept_when_the_loss_is_not_finite(regression, one_worker):
    shutil.copytree(regression.folder / "one", regression.folder / "nan")
    before = checksums(regression.folder / "nan/checkpoints")
    options = ("--job-dir=nan", *SETTINGS, "--epochs=4", "--learning-rate=1e300")
    result = regression.trainer(*options, code=1)
    assert result.err.splitlines()[-1].startswith("trainer: error: the loss is not finite at step")
    assert before.items() <= checksums(regression.folder / "nan/checkpoints").items()


def checksums(folder):
    return {path.name: zlib.crc32((path / "values.npz").read_bytes()) for path in folder.iterdir()}


ANOTHER = """
import keras, os, sys
from trainer import model, task

create = model.create_model

def create_other():
    other, known = create(), keras.optimizers
    if os.environ["ANOTHER"] == "optimizer":
        other.compile(known.Adamax(1e-2), "mse", metrics=["mae"])
    else:
        other.compile(known.Adam(1e-2, global_clipnorm=0.5), "mse", metrics=["mse", "mae"])
    return other

model.create_model = create_other
sys.exit(task.main())
"""


@pytest.fixture(scope="module")
def another(regression, three_workers):
    """Resume the job of three workers on one with another optimizer, or other metrics."""
    regression.write("another.py", ANOTHER)
    shutil.copytree(regression.folder / "three", regression.folder / "another")
    options = ("--job-dir=another", *SETTINGS, "--epochs=4")
    return lambda change: regression.run("another", *options, ANOTHER=change)


def test_a_run_with_another_optimizer_is_refused(another):
    result = another("optimizer")
    assert result.code == 1
    assert result.err.splitlines()[-1] == (
        "trainer: error: the checkpoint is not of this model: model.optimizer differs: class is "
        "'Adam' in the checkpoint and 'Adamax' here; use a new --job-dir, or --no-resume "
        "to start from scratch"
    )


def test_a_run_with_other_metrics_resumes(another, regression):
    result = another("metrics")
    assert result.code == 0, result.text
    assert "trainer: warning: the metrics have changed" in result.err
    assert "mse" in regression.summary("another")["epochs"][-1]["logs"]
