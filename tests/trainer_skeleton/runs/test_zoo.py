"""The weights of one worker and the history, the calls and the files of `fit`, on any cluster.

`make laws` trains every model of the zoo, on one worker and on two to four."""

import json
import math
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

from .conftest import LAWS, TWO_DEVICES, arrays_in, float64_by_default
from .zoo import CASES

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent

NAMES = ("scaled_loss", "subclassed", "adversarial", "gradient_tape")
SIZES = (2,)
CALLED = ("with_callbacks", "bad_value")
if LAWS:
    NAMES, SIZES = tuple(name for name in CASES if name not in CALLED), (2, 3, 4)
if TWO_DEVICES:
    SIZES = (2,)  # of two replicas each


@pytest.fixture(scope="module")
def trained(new_project):
    """The folder of the zoo, trained in one cluster of each size."""
    project = new_project()
    for name in ("zoo.py", "train_zoo.py"):
        shutil.copy(HERE / name, project.folder)
    for workers in (1, *SIZES):
        module = ("--workers", str(workers), "--set", "module=train_zoo")
        options = (f"--folder={project.folder}/{workers}", "--models", *NAMES, *CALLED)
        project.local(f"job-{workers}", *module, "--", *options)
    return project.folder


def history_of(folder):
    epochs = [
        epoch["logs"] for epoch in json.loads((folder / "summary.json").read_text())["epochs"]
    ]
    return {name: [logs[name] for logs in epochs] for name in epochs[0]}


def assert_close(arrays, expected_arrays, tolerance=1e-6):
    for array, expected in zip(arrays, expected_arrays, strict=True):
        np.testing.assert_allclose(array, expected, rtol=0, atol=tolerance)


def assert_history_close(history, expected, tolerance=1e-6):
    assert history.keys() == expected.keys()
    assert_close(history.values(), [expected[name] for name in history], tolerance)


@pytest.mark.parametrize("workers", SIZES)
def test_two_optimizers_resume_on_another_number_of_workers(trained, workers):
    folder = trained / str(workers) / "resumed/adversarial"
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["resumed_from"], summary["steps"]) == (11, 22)
    alone = trained / "1/adversarial"
    assert_close(*(arrays_in(path / "chief.npz") for path in (folder, alone)), tolerance=1e-12)
    assert_history_close(history_of(folder), history_of(alone))


@pytest.mark.parametrize("workers", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_weights_are_those_of_one_worker(trained, name, workers):
    folder, folder_of_one = trained / str(workers) / name, trained / "1" / name
    together, alone = (arrays_in(path / "chief.npz") for path in (folder, folder_of_one))
    tasks = [path.stem for path in folder.glob("*.npz")]
    assert set(tasks) == {"chief", *(f"worker-{n}" for n in range(workers - 1))}
    for task in tasks:
        assert_close(arrays_in(folder / f"{task}.npz"), together, tolerance=0)
    is_rough = CASES[name].precision == "mixed_float16"
    pairs = zip(together, alone, strict=True)
    pairs = [pair for pair in pairs if pair[0].ndim or not is_rough]  # scales may differ
    tolerance = 5e-2 if is_rough else 1e-6
    assert_close(*zip(*pairs, strict=True), tolerance)
    assert_history_close(history_of(folder), history_of(folder_of_one), tolerance)


@pytest.mark.parametrize("name", [name for name in NAMES if CASES[name].as_fit])
def test_history_is_that_of_fit(trained, name):
    history = json.loads((trained / f"1/{name}/fit/history.json").read_text())
    assert_history_close(history_of(trained / "1" / name), history)


@pytest.mark.parametrize("workers", [1, 2])
def test_steps_that_overflow_are_left_out_by_all(trained, workers):
    paths = (trained / str(workers) / "scaled_loss").glob("*.npz")
    (scale,) = {max(float(v) for v in arrays_in(path) if v.ndim == 0) for path in paths}
    assert 1 <= scale < 2.0**22


def calls_in(path):
    return json.loads(path.read_text())


@pytest.mark.parametrize("task", ["1/{}/chief", "2/{}/chief", "2/{}/worker-0"])
@pytest.mark.parametrize("name", CALLED)
def test_calls_and_weights_of_callbacks_are_those_of_fit(trained, name, task):
    path, of_fit = trained / task.format(name), trained / f"1/{name}/fit/task"
    calls, expected_calls = (calls_in(file.with_suffix(".json")) for file in (path, of_fit))
    assert [call[:3] for call in calls] == [call[:3] for call in expected_calls]
    for (*call, rate, logs), (*_, fit_rate, fit_logs) in zip(calls, expected_calls, strict=True):
        assert rate == pytest.approx(fit_rate, abs=1e-9), call
        assert logs == pytest.approx(fit_logs, abs=1e-6, nan_ok=True), call
    assert_close(*(arrays_in(file.with_suffix(".npz")) for file in (path, of_fit)))


def test_fit_has_stopped_early_at_a_lower_rate_and_at_a_bad_value(trained):
    calls = calls_in(trained / "1/with_callbacks/fit/task.json")
    epochs = [call for call in calls if call[:2] == ["last", "on_epoch_end"]]
    assert 2 < len(epochs) < CASES["with_callbacks"].epochs
    assert epochs[-1][3] < epochs[0][3]
    hooks = {call[1] for call in calls}
    assert {"on_train_batch_end", "on_test_batch_begin", "on_test_batch_end"} <= hooks
    bad = calls_in(trained / "1/bad_value/fit/task.json")
    assert [call[1] for call in bad].count("on_epoch_end") == 1
    assert math.isnan(bad[-1][4]["loss"])


@pytest.mark.parametrize("workers", [1, 2])
def test_files_of_callbacks_are_written_once_and_as_under_fit(trained, workers):
    folders = trained / f"{workers}/with_callbacks", trained / "1/with_callbacks/fit"
    tables = [(folder / "log.csv").read_text().splitlines() for folder in folders]
    assert tables[0][0] == tables[1][0]
    assert_close(*([np.array(row.split(","), float) for row in rows] for _, *rows in tables))
    with float64_by_default():
        models = [keras.models.load_model(folder / "best.keras") for folder in folders]
    assert_close(*(model.get_weights() for model in models))
    for part in ("train", "validation"):
        boards = [list((folder / "board" / part).iterdir()) for folder in folders]
        assert [len(files) for files in boards] == [1, 1]
