"""The weights of one worker and the history of `fit`: models of the zoo, on one worker and on more.

`make laws` trains every model, on one worker and on two to four."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from .zoo import CASES

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
ROUGH = {"mixed_bfloat16": 1e-2, "mixed_float16": 5e-2}


SOME = ("masked_sequences", "every_reduction", "accumulated_gradients", "scaled_loss")
CASES_OF = {1: SOME, 2: SOME}
if os.environ.get("DISTLAUNCH_TEST_LAWS"):  # make laws
    CASES_OF = dict.fromkeys((1, 2, 3, 4), tuple(CASES))


@pytest.fixture(scope="module")
def trained(new_project):
    """Train the zoo, in one cluster of each size."""
    project = new_project()
    for name in ("zoo.py", "train_zoo.py"):
        shutil.copy(HERE / name, project.folder)
    for workers, names in CASES_OF.items():
        options = ("--workers", str(workers), "--set", "module=train_zoo", "--")
        folder = project.folder / f"of-{workers}"
        result = project.local(f"job-{workers}", *options, f"--folder={folder}", "--models", *names)
        assert result.code == 0, result.text
    return project.folder


def weights_of(folder, name):
    """Return the weights that each task ended with, those of the optimizer too."""
    weights = {}
    for path in sorted(folder.glob(f"{name}.*.npz")):
        with np.load(path) as values:
            weights[path.name.split(".")[1]] = [values[key] for key in values.files]
    return weights


def logs_of(folder, name):
    summary = json.loads((folder / name / "summary.json").read_text())
    return [epoch["logs"] for epoch in summary["epochs"]]


def assert_close(logs, expected_logs, tolerance):
    for epoch, expected in zip(logs, expected_logs, strict=True):
        assert epoch.keys() == expected.keys()
        for key, value in epoch.items():
            np.testing.assert_allclose(value, expected[key], rtol=0, atol=tolerance, err_msg=key)


@pytest.mark.parametrize(
    ("name", "workers"), [(name, size) for size in CASES_OF for name in CASES_OF[size] if size > 1]
)
def test_weights_are_those_of_one_worker(trained, name, workers):
    (alone,) = weights_of(trained / "of-1", name).values()
    together = weights_of(trained / f"of-{workers}", name)
    assert set(together) == {"chief", *(f"worker-{n}" for n in range(workers - 1))}
    for values in together.values():
        for one, other in zip(values, together["chief"], strict=True):
            np.testing.assert_array_equal(one, other)
    tolerance = ROUGH.get(CASES[name].precision, 1e-6)
    for one, other in zip(together["chief"], alone, strict=True):
        if one.ndim or CASES[name].precision != "mixed_float16":  # scales may differ by a factor
            np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)
    logs = logs_of(trained / f"of-{workers}", name), logs_of(trained / "of-1", name)
    assert_close(*logs, tolerance)


@pytest.mark.parametrize("name", [name for name in CASES_OF[1] if CASES[name].as_fit])
def test_history_is_that_of_fit(trained, name):
    history = json.loads((trained / f"of-1/{name}.fit.json").read_text())
    assert_close(logs_of(trained / "of-1", name), history, 1e-6)


@pytest.mark.parametrize("workers", [1, 2])
def test_steps_that_overflow_are_left_out_by_all(trained, workers):
    tasks = weights_of(trained / f"of-{workers}", "scaled_loss")
    scales = {
        float(np.max([np.max(v) for v in values if v.ndim == 0])) for values in tasks.values()
    }
    (scale,) = scales
    assert 1 <= scale < 2.0**22
