"""From nothing to a model in the job's folder, with a real Docker, registry and TensorFlow.

That an image is built once, and code then appended to it, is in tests/image/test_build.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile

import emulators
import pytest


@pytest.mark.slow
def test_from_a_new_project_to_a_model(engine, cli, tmp_path):
    settings = {
        "project": emulators.PROJECT,
        "bucket": "gs://demo-bucket",
        "image.base": engine.base,
        "image.repository": engine.repository("digits"),
    }
    options = [f"--set={field}={value}" for field, value in settings.items()]
    assert cli("init", "digits").returncode == 0
    with emulators.running(tmp_path, "--run-with=docker", **engine.environment) as emulator:
        done = subprocess.run(
            [sys.executable, "-m", "distlaunch", "submit", *options, "--", "--epochs=1"],
            cwd=tmp_path / "digits",
            env=emulator.environment | engine.environment,
            capture_output=True,
            text=True,
            timeout=540,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        [job] = emulator.jobs()
    assert "chief    | epoch 1/1: loss" in done.stdout
    assert "chief + 1 worker\n" in done.stdout
    assert "state SUCCEEDED (RUNNING took" in done.stderr
    images = {pool["containerSpec"]["imageUri"] for pool in job["jobSpec"]["workerPoolSpecs"]}
    assert ["@sha256:" in image for image in images] == [True]
    folder = tmp_path / job["jobSpec"]["baseOutputDirectory"]["outputUriPrefix"][5:]
    assert json.loads((folder / "summary.json").read_text())["tasks"] == ["chief", "worker:0"]
    [model] = (folder / "model").glob("*.keras")
    assert "model.weights.h5" in zipfile.ZipFile(model).namelist()
