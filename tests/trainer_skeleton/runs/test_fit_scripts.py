"""Scripts of `fit` train on two workers to what they train to by themselves, without changes."""

from __future__ import annotations

import io
import os
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np
import pytest

from ..conftest import environment_outside_clusters  # noqa: TID252

if TYPE_CHECKING:
    from tensorflow_host import PythonHost, Result

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[1] / "fit_scripts"
QUICK = {"gan", "image_classification"}
OTHER_BATCHES = {"multi_worker_tutorial"}  # its global batch grows with the cluster
TOLERANCE = 1e-6


def scripts() -> list[str]:
    names = sorted({path.stem for path in FOLDER.glob("*.py")} - OTHER_BATCHES)
    return names if os.environ.get("DISTLAUNCH_TEST_LAWS") else sorted(QUICK)


def run_alone(host: PythonHost, script: str, folder: Path) -> Result:
    """Do what ``python script.py`` does."""
    folder.mkdir()
    (folder / f"{script}.py").symlink_to(FOLDER / f"{script}.py")
    result = host.run(script, cwd=folder, env=environment_outside_clusters())
    assert result.code == 0, result.text
    return result


def run_on(host: PythonHost, script: str, folder: Path, *, workers: int) -> Result:
    folder.mkdir()
    program = ["python", "-m", "distlaunch_trainer.fit", str(FOLDER / f"{script}.py")]
    options = ["--workers", str(workers), "--job-dir", str(folder / "job")]
    env = environment_outside_clusters()
    result = host.run("distlaunch", "local", *options, "--", *program, cwd=folder, env=env)
    assert result.code == 0, result.text
    return result


def numbers(text: str) -> dict[str, float]:
    """Return what a script printed as ``name: number`` or ``name number``, on the chief."""
    found = re.findall(
        r"^(?:chief +\| )?([A-Za-z_ ]+):? (-?[\d.]+(?:e-?\d+)?)$", text, re.MULTILINE
    )
    return {name: float(number) for name, number in found}


def weights(path: Path) -> dict[str, np.ndarray]:
    """Return the weights in a ``.keras`` file by their paths."""
    values: dict[str, np.ndarray] = {}

    def take(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and not name.startswith("optimizer"):
            values[name] = item[()]

    with zipfile.ZipFile(path) as archive:
        stored = io.BytesIO(archive.read("model.weights.h5"))
    with h5py.File(stored) as file:
        file.visititems(take)
    return values


@pytest.mark.parametrize("script", scripts())
def test_two_workers_train_a_script_to_its_own_weights(script, tensorflow, tmp_path):
    alone = numbers(run_alone(tensorflow, script, tmp_path / "one").out)
    together = numbers(run_on(tensorflow, script, tmp_path / "two", workers=2).out)
    assert alone
    assert {name: together[name] for name in alone} == pytest.approx(alone, abs=TOLERANCE)
    one, two = (weights(tmp_path / folder / "model.keras") for folder in ("one", "two"))
    assert one.keys() == two.keys()
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, rtol=0, atol=TOLERANCE, err_msg=name)


@pytest.mark.skipif(not os.environ.get("DISTLAUNCH_TEST_LAWS"), reason="in `make laws`")
def test_the_tutorial_runs(tensorflow, tmp_path):
    result = run_on(tensorflow, "multi_worker_tutorial", tmp_path / "two", workers=2)
    assert numbers(result.out)["Accuracy"] >= 0
    assert weights(tmp_path / "two/model.keras")
