"""Keras's callbacks get the calls that they get under `fit`, in one order, with the same logs."""

import json
import math
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def called(new_project):
    """Train under `fit`, on one worker and on two; with bad values in the data too."""
    project = new_project()
    for name in ("zoo.py", "call_callbacks.py"):
        shutil.copy(HERE / name, project.folder)
    for workers in (1, 2):
        options = ("--workers", str(workers), "--set", "module=call_callbacks", "--")
        folder = f"--folder={project.folder / str(workers)}"
        result = project.local(f"job-{workers}", *options, folder)
        assert result.code == 0, result.text
    return project.folder


def calls_of(folder, task):
    return json.loads((folder / f"calls.{task}.json").read_text())


def values_of(folder, task):
    with np.load(folder / f"weights.{task}.npz") as values:
        return np.concatenate([values[name].ravel() for name in values.files])


TASKS = [("1", "chief"), ("2", "chief"), ("2", "worker-0")]


@pytest.mark.parametrize(("workers", "task"), TASKS)
@pytest.mark.parametrize("data", ["", "-nan"])
def test_calls_are_those_of_fit(called, workers, task, data):
    expected_calls = calls_of(called / f"1{data}/fit", "fit")
    calls = calls_of(called / f"{workers}{data}", task)
    assert [call[:3] for call in calls] == [call[:3] for call in expected_calls]
    for (*call, rate, logs), (*_, fit_rate, fit_logs) in zip(calls, expected_calls, strict=True):
        assert rate == pytest.approx(fit_rate, abs=1e-9), call
        assert logs == pytest.approx(fit_logs, abs=1e-6, nan_ok=True), call


def test_what_they_do_is_done(called):
    """Early stopping with the best weights restored, rates that fall, bad losses that end it."""
    calls = calls_of(called / "1/fit", "fit")
    epochs = [call for call in calls if call[:2] == ["last", "on_epoch_end"]]
    assert 2 < len(epochs) < 7
    assert epochs[-1][3] < epochs[0][3]
    hooks = {call[1] for call in calls}
    assert {"on_train_batch_end", "on_test_batch_begin", "on_test_batch_end"} <= hooks
    bad = calls_of(called / "1-nan/fit", "fit")
    assert [call[1] for call in bad].count("on_epoch_end") == 1
    assert math.isnan(bad[-1][4]["loss"])


@pytest.mark.parametrize(("workers", "task"), TASKS)
def test_best_weights_are_restored_as_under_fit(called, workers, task):
    values, expected = values_of(called / workers, task), values_of(called / "1/fit", "fit")
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_files_are_written_once_and_as_under_fit(called, workers):
    folders = called / workers, called / "1/fit"
    tables = [(folder / "log.csv").read_text().splitlines() for folder in folders]
    assert tables[0][0] == tables[1][0]
    numbers = [[[float(cell) for cell in row.split(",")] for row in rows] for _, *rows in tables]
    np.testing.assert_allclose(*numbers, rtol=0, atol=1e-6)
    keras.config.set_floatx("float64")
    try:
        models = [keras.models.load_model(folder / "best.keras") for folder in folders]
    finally:
        keras.config.set_floatx("float32")
    for one, other in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
    for part in ("train", "validation"):
        boards = [list((folder / "board" / part).iterdir()) for folder in folders]
        assert [len(files) for files in boards] == [1, 1]
