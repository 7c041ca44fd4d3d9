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
        for bad in ("", "-nan"):
            name = f"{workers}{bad}"
            options = ("--workers", str(workers), "--set", "module=call_callbacks", "--")
            folder = f"--folder={project.folder / name}"
            result = project.local(f"job-{name}", *options, folder, *["--nan"] * bool(bad))
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
    expected = calls_of(called / f"1{data}/fit", "fit")
    found = calls_of(called / f"{workers}{data}", task)
    assert [call[:3] for call in found] == [call[:3] for call in expected]
    for (*place, rate, logs), (*_, other_rate, other_logs) in zip(found, expected, strict=True):
        assert rate == pytest.approx(other_rate, abs=1e-9), place
        assert logs.keys() == other_logs.keys(), place
        for name, value in logs.items():
            both_bad = math.isnan(value) and math.isnan(other_logs[name])
            assert both_bad or value == pytest.approx(other_logs[name], abs=1e-6), (place, name)


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
    found, expected = values_of(called / workers, task), values_of(called / "1/fit", "fit")
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_files_are_written_once_and_as_under_fit(called, workers):
    found, expected = called / workers, called / "1/fit"
    rows = [(f / "log.csv").read_text().splitlines() for f in (found, expected)]
    assert rows[0][0] == rows[1][0]
    numbers = [[[float(cell) for cell in row.split(",")] for row in each[1:]] for each in rows]
    np.testing.assert_allclose(*numbers, rtol=0, atol=1e-6)
    keras.config.set_floatx("float64")
    try:
        models = [keras.models.load_model(f / "best.keras") for f in (found, expected)]
    finally:
        keras.config.set_floatx("float32")
    for one, other in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
    for part in ("train", "validation"):
        boards = [list((f / "board" / part).iterdir()) for f in (found, expected)]
        assert [len(files) for files in boards] == [1, 1]
