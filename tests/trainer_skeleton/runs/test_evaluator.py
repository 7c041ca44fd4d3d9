"""An evaluator beside a chief and a worker: each checkpoint, the best model, a killed evaluator."""

import json

import keras
import numpy as np
import pytest

from .conftest import LAWS

pytestmark = pytest.mark.slow

EVALUATOR = "--set=cluster.evaluators={machine: n1-standard-4, count: 1}"
# The worst weights are the last: the best model is none of the trained one.
SPOILED = """

class Spoil(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            self.model.set_weights([0 * weight for weight in self.model.get_weights()])


def callbacks():
    return [Spoil()]
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
    # The evaluator's optimizer needs the schedule, of which only the checkpoints have the length.
    schedule = ("--warmup-epochs=0.5", "--decay=exponential")
    options = ("--epochs=3", "--checkpoint-every=15", "--export=best", *schedule)
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


def test_the_best_model_loads_in_plain_keras(evaluated):
    project, _ = evaluated
    best = min(evaluations(project, "job"), key=lambda each: each["logs"]["loss"])
    assert best["step"] < 69
    folder = project.folder / "job/export/best"
    assert json.loads((folder / "evaluation.json").read_text())["step"] == best["step"]
    assert (folder / "saved_model.pb").exists()
    assert validation_of(project, "best", folder) == pytest.approx(best["logs"], rel=1e-6)
    model = keras.models.load_model(folder / "model.keras")
    assert model.predict(np.zeros((2, 8, 8, 1)), verbose=0).shape == (2, 10)


if LAWS:

    def test_the_chief_exports_where_there_is_no_evaluator(evaluated):
        project, _ = evaluated
        options = ("--epochs=2", "--export=best", "--export-metric=accuracy")
        project.trainer("--job-dir=chief", *options)
        project.trainer("--job-dir=chief", "--epochs=3", *options[1:])  # spoils the model
        facts = json.loads((project.folder / "chief/export/best/evaluation.json").read_text())
        epochs = project.summary("chief")["epochs"]
        accuracies = [epoch["logs"]["val_accuracy"] for epoch in epochs]
        assert facts["value"] == max(accuracies) > accuracies[2]
        assert facts["epoch"] == 1 + accuracies.index(max(accuracies))
        logs = validation_of(project, "chief", project.folder / "chief/export/best")
        assert logs["accuracy"] == pytest.approx(max(accuracies))
