"""Keras's own tests of `fit` and of callbacks, with the trainer in place of `fit`.

`make laws` runs all of them. A test that fails here and passes with Keras's `fit` is in
exceptions.yaml with the reason; one of these that passes is a failure.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from ..conftest import environment_outside_clusters  # noqa: TID252

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorflow_host import PythonHost

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
KERAS = Path(importlib.util.find_spec("keras").origin).parent / "src"

TRAINER_TEST = "trainers/trainer_test.py::TestTrainer::"
QUICK = [
    "callbacks/callback_test.py",
    TRAINER_TEST + "test_callback_methods_keys",
    TRAINER_TEST + "test_callbacks_can_update_state_at_batch_boundary",
    TRAINER_TEST + "test_metric_update_in_compute_loss",
    TRAINER_TEST + "test_steps_per_execution_steps_count_3_non_jit",
]
RUNS = {"quick": QUICK}
if os.environ.get("DISTLAUNCH_TEST_LAWS"):  # make laws
    files = [*KERAS.glob("callbacks/*_test.py"), KERAS / "trainers/trainer_test.py"]
    # Orbax is no dependency of Keras.
    files = [file for file in files if file.name != "orbax_checkpoint_test.py"]
    RUNS = {file.stem: [str(file.relative_to(KERAS))] for file in sorted(files)}


@pytest.fixture(scope="module")
def exceptions() -> list[str]:
    """The patterns of tests that may fail."""
    groups = yaml.safe_load((HERE / "exceptions.yaml").read_text())
    return [pattern for group in groups for pattern in group["tests"]]


@pytest.fixture
def run_suite(tensorflow: PythonHost, tmp_path: Path) -> Callable[..., dict]:
    for name in ("run_suite.py", "fit_adapter.py"):
        shutil.copy(HERE / name, tmp_path)

    def run(*arguments: str) -> dict[str, tuple[str, str]]:
        path = tmp_path / "results.json"
        path.unlink(missing_ok=True)
        words = (f"--results={path}", *arguments)
        env = environment_outside_clusters()
        result = tensorflow.run("run_suite", *words, cwd=tmp_path, env=env)
        assert path.exists(), result.text
        return json.loads(path.read_text())

    return run


@pytest.mark.parametrize("tests", RUNS.values(), ids=RUNS)
def test_what_passes_with_fit_passes_with_the_trainer(run_suite, exceptions, tests) -> None:
    results = run_suite("--with-trainer", *tests)
    outcomes = {outcome for outcome, _ in results.values()}
    assert "passed" in outcomes
    expected = {t for t in results for pattern in exceptions if fnmatch.fnmatch(t, pattern)}
    assert {test for test in expected if results[test][0] == "passed"} == set()
    failed = {test: text for test, (outcome, text) in results.items() if outcome == "failed"}
    unexpected = sorted(failed.keys() - expected)
    if unexpected:  # perhaps with `fit` too, e.g. where a package is not installed
        with_fit = run_suite(*unexpected)
        unexpected = [test for test in unexpected if with_fit[test][0] == "passed"]
    assert {test: failed[test] for test in unexpected} == {}
