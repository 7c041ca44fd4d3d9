"""Scripts of `fit` train on two workers to what they train to by themselves, without changes."""

from __future__ import annotations

import io
import json
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
QUICK = {"gan", "steps_per_execution"}
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
    """Launch a project whose job file names the script."""
    folder.mkdir()
    (folder / f"{script}.py").symlink_to(FOLDER / f"{script}.py")
    (folder / "distlaunch.yaml").write_text(
        f"{{name: fit, script: {script}.py, cluster: {{chief: {{machine: n1-standard-4}}}}}}\n"
    )
    options = ["--workers", str(workers), "--job-dir", "job"]
    env = environment_outside_clusters()
    result = host.run("distlaunch", "local", *options, cwd=folder, env=env)
    assert result.code == 0, result.text
    return result


def numbers(text: str) -> dict[str, float]:
    """Return what a script printed as ``name: number`` or ``name number``, on the chief."""
    pairs = re.findall(
        r"^(?:chief +\| )?([A-Za-z_ ]+):? (-?[\d.]+(?:e-?\d+)?)$", text, re.MULTILINE
    )
    return {name: float(number) for name, number in pairs}


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
    assert {name: together[name] for name in alone} == pytest.approx(
        alone, rel=TOLERANCE, abs=TOLERANCE
    )
    one, two = (weights(tmp_path / folder / "model.keras") for folder in ("one", "two"))
    assert one.keys() == two.keys()
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, rtol=0, atol=TOLERANCE, err_msg=name)


def test_the_tutorial_runs_and_only_the_chief_writes(tensorflow, tmp_path):
    """Its workers save their models too, each into a folder that the script makes."""
    folder = tmp_path / "two"
    result = run_on(tensorflow, "multi_worker_tutorial", folder, workers=2)
    assert numbers(result.out)["Accuracy"] >= 0
    assert weights(folder / "model.keras")
    assert list((folder / "workertemp_worker_0").iterdir()) == []
    summary = json.loads((folder / "job" / "summary.json").read_text())
    assert (summary["replicas"], summary["steps"], len(summary["epochs"])) == (2, 10, 2)
    assert Path(folder, summary["model"]).is_dir()
