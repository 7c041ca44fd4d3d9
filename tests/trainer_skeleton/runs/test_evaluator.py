"""An evaluator beside a chief and a worker: each checkpoint, the best epoch, a killed evaluator."""

import json

import keras
import numpy as np
import pytest

from .conftest import LAWS

pytestmark = pytest.mark.slow

EVALUATOR = "--set=cluster.evaluators={machine: n1-standard-4, count: 1}"
# The worst weights are the last: the best model is not the trained one.
SPOILED = """

import os


class Spoil(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            self.model.set_weights([0 * weight for weight in self.model.get_weights()])


def callbacks():
    path = os.path.join(os.environ.get("AIP_MODEL_DIR", "job/model"), "best.keras")
    monitor = "val_accuracy"
    return [Spoil(), keras.callbacks.ModelCheckpoint(path, monitor, save_best_only=True)]
"""


def evaluations(project, job):
    lines = (project.folder / job / "evaluations.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def validation_of(project, job, path, **options):
    """Return the loss by `--evaluate`."""
    arguments = [f"--{name}={value}" for name, value in options.items()]
    project.trainer(f"--evaluate={path}", f"--job-dir={job}-evaluated", *arguments)
    return json.loads((project.folder / f"{job}-evaluated/evaluation.json").read_text())["logs"]


@pytest.fixture(scope="module")
def evaluated(new_project):
    """A run whose evaluator is killed at its first evaluation and started again."""
    project = new_project()
    text = (project.folder / "trainer/model.py").read_text()
    project.write("trainer/model.py", text + SPOILED)
    kill = ("--restarts=1", "--kill=evaluator:0@step=23")
    options = ("--epochs=3", "--checkpoint-every=15", "--warmup-epochs=0.5")
    return project, project.local("job", EVALUATOR, *kill, "--", *options)


def test_each_checkpoint_is_evaluated_once_also_if_the_evaluator_is_killed(evaluated):
    project, result = evaluated
    assert "evaluator:0 was killed by signal 9" in result.text, result.text
    names = [each["checkpoint"] for each in evaluations(project, "job")]
    assert len(set(names)) == len(names)
    steps = [each["step"] for each in evaluations(project, "job")]
    assert steps == sorted(steps)
    assert steps[-1] == 69
    assert set(steps) <= {15, 23, 30, 45, 46, 60, 69}
    logs = {each["step"]: each["logs"] for each in evaluations(project, "job")}
    for epoch in project.summary("job")["epochs"]:
        if epoch["step"] in logs:
            expected = {name: epoch["logs"][f"val_{name}"] for name in ("loss", "accuracy")}
            assert logs[epoch["step"]] == pytest.approx(expected, rel=1e-4)
    assert f"evaluation of step 69: loss {logs[69]['loss']:.4f}" in result.out
    assert list((project.folder / "job/logs/evaluator").glob("events.*"))


def best_of(project, job):
    """Return the results of the best of a run's epochs."""
    epochs = project.summary(job)["epochs"]
    return max(epochs, key=lambda epoch: epoch["logs"]["val_accuracy"])


def test_the_best_model_of_a_callback_loads_in_plain_keras(evaluated):
    project, _ = evaluated
    best = best_of(project, "job")
    assert best["epoch"] < 3
    path = project.folder / "job/model/best.keras"
    expected = {name: best["logs"][f"val_{name}"] for name in ("loss", "accuracy")}
    assert validation_of(project, "best", path) == pytest.approx(expected, rel=1e-4)
    model = keras.models.load_model(path)
    assert model.predict(np.zeros((2, 8, 8, 1)), verbose=0).shape == (2, 10)


if LAWS:

    def test_a_resumed_run_keeps_the_best_model(evaluated):
        project, _ = evaluated
        path = project.folder / "job/model/best.keras"
        path.unlink()
        project.trainer("--job-dir=resumed", "--epochs=2")
        before = path.read_bytes()
        project.trainer("--job-dir=resumed", "--epochs=3")  # spoils the model
        assert best_of(project, "resumed")["epoch"] < 3
        assert path.read_bytes() == before
