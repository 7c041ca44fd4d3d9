"""Saved models are evaluated on any number of workers, and a step that never ends is reported."""

import json

import keras
import pytest

from .conftest import REGRESSION_DATA, REGRESSION_MODEL, SETTINGS, float64_by_default

pytestmark = pytest.mark.slow

# One worker of two blocks in the second epoch.
CALLBACKS = """
import os, threading
import numpy as np
from trainer import data


class Evaluate(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        arrays = data.validation()
        results = self.model.evaluate(
            arrays.x, arrays.y, sample_weight=arrays.sample_weight, verbose=0, return_dict=True
        )
        assert results.keys() == {"loss", "mae"}, results
        for name, value in results.items():
            np.testing.assert_allclose(value, logs[f"val_{name}"], rtol=1e-12)
        loss, _ = self.model.evaluate(arrays.x, arrays.y, arrays.x.shape[0], verbose=0)
        print("UNWEIGHTED", round(loss, 10), flush=True)


class Block(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1 and '"type": "worker"' in os.environ.get("TF_CONFIG", ""):
            threading.Event().wait()


def callbacks():
    return [Evaluate()]
"""


# 37 other rows, of which the last batch has one.
TEST_DATA = """
def test():
    return _arrays(37, 3)
"""


@pytest.fixture(scope="module")
def trained(new_project):
    """A project whose callback evaluates the model after each epoch, trained on two workers."""
    project = new_project(REGRESSION_MODEL + CALLBACKS, REGRESSION_DATA + TEST_DATA)
    options = ("--epochs=1", *SETTINGS[1:])
    return project, project.local("job", "--workers", "2", "--", *options).out


def test_callbacks_evaluate_on_all_workers_as_fit_does_on_one(trained):
    project, out = trained
    with float64_by_default():
        model = keras.models.load_model(project.folder / "job/model/model.keras")
        code: dict = {}
        exec(REGRESSION_DATA, code)  # noqa: S102 - the project's own
        arrays = code["validation"]()
        loss, _ = model.evaluate(arrays.x, arrays.y, batch_size=37, verbose=0)
    assert out.count(f"UNWEIGHTED {round(loss, 10)}\n") == 2


def evaluation(project, job, path, *options, workers):
    arguments = ("--precision=float64", "--global-batch-size=12", f"--evaluate={path}", *options)
    project.local(job, "--workers", str(workers), "--", *arguments)
    return json.loads((project.folder / job / "evaluation.json").read_text())


def test_saved_models_and_checkpoints_evaluate_alike_on_any_number_of_workers(trained):
    project, _ = trained
    (epoch,) = project.summary("job")["epochs"]
    expected = {name: epoch["logs"][f"val_{name}"] for name in ("loss", "mae")}
    checkpoint = max((project.folder / "job/checkpoints").iterdir())
    for workers, path in ((1, project.folder / "job/model/model.keras"), (2, checkpoint)):
        result = evaluation(project, f"evaluated-{workers}", path, workers=workers)
        assert result["evaluated"] == str(path)
        assert (result["examples"], result["replicas"]) == (37, workers)
        assert result["logs"] == pytest.approx(expected, abs=1e-12)
    assert project.summary("job")["epochs"] == [epoch]


def test_the_trained_model_is_tested_on_all_workers(trained):
    project, out = trained
    results = project.summary("job")["test"]
    model = project.folder / "job/model"
    evaluated = evaluation(project, "tested", model, "--evaluate-on=test", workers=1)
    assert (evaluated["examples"], evaluated["logs"]) == (37, pytest.approx(results, abs=1e-12))
    assert results != pytest.approx(project.summary("job")["epochs"][0]["logs"], abs=1e-3)
    assert f"| test loss {results['loss']:.4f} mae {results['mae']:.4f}\n" in out
    assert project.events("job", "chief")[-1]["test"] == results
    assert project.events("job", "worker-0")[-1]["test"] == results


def test_weights_that_are_not_there_are_reported(trained):
    project, _ = trained
    result = project.trainer("--evaluate=nowhere", "--job-dir=other", code=1)
    assert "--evaluate nowhere: found no checkpoint, .keras or .weights.h5 file" in result.err


def test_a_task_that_blocks_ends_and_is_reported_first(trained):
    project, _ = trained
    project.replace("trainer/model.py", "[Evaluate()]", "[Block()]")
    options = ("--epochs=2", "--step-timeout=5", "--global-batch-size=12")
    result = project.local("blocked", "--workers", "2", "--", *options, code=1)
    assert "distlaunch: error: worker:0 failed with exit code 1" in result.text
    assert (
        "worker:0: no step has ended for 5 s: this task is in trainer/model.py, line" in result.text
    )
    assert "in on_epoch_begin" in result.text
