"""From nothing to a model in the job's folder, with a real Docker, registry and TensorFlow."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import emulators
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NO_DOCKER = {"DOCKER_HOST": "unix:///nowhere.sock"}

LOAD = """\
import sys, keras, numpy
model = keras.models.load_model(sys.argv[1])
print(model.predict(numpy.zeros((3, 8, 8, 1), "float32"), verbose=0).shape)
"""


@dataclass(frozen=True)
class Setup:
    """A project and an emulator."""

    project: Project
    emulator: emulators.Emulator

    @property
    def bucket(self) -> Path:
        """The folder of the emulator's buckets."""
        return self.emulator.storage


@dataclass(frozen=True)
class Project:
    """A project of the digits, and what it is launched with."""

    folder: Path
    options: tuple[str, ...]
    environment: dict[str, str]

    def run(self, command, *words, **variables):
        done = subprocess.run(
            [sys.executable, "-m", "distlaunch", command, *words],
            cwd=self.folder,
            env=self.environment | variables,
            capture_output=True,
            text=True,
            timeout=540,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done

    def submit(self, *words, **variables):
        return self.run("submit", *self.options, *words, **variables)


@pytest.fixture(scope="module")
def setup(engine, tmp_path_factory) -> Iterator[Setup]:
    """A new project, and an emulator that runs containers."""
    folder = tmp_path_factory.mktemp("end-to-end")
    with emulators.running(folder, "--run-with=docker", **engine.environment) as emulator:
        settings = {
            "project": emulators.PROJECT,
            "bucket": "gs://demo-bucket",
            "image.base": engine.base,
            "image.repository": engine.repository("digits"),
            "cluster.workers.count": "2",
        }
        options = tuple(f"--set={field}={value}" for field, value in settings.items())
        environment = emulator.environment | engine.environment
        project = Project(folder / "digits", options, environment)
        subprocess.run(
            [sys.executable, "-m", "distlaunch", "init", project.folder], check=True, cwd=folder
        )
        yield Setup(project, emulator)


@pytest.mark.slow
def test_from_a_new_project_to_a_model(setup):
    done = setup.project.submit("--", "--epochs=2")

    assert "chief    | epoch 2/2: loss" in done.stdout
    assert "worker:1 | " in done.stdout
    assert "chief + 2 workers\n" in done.stdout
    assert "state SUCCEEDED (RUNNING took" in done.stderr
    [job] = setup.emulator.jobs()
    folder = setup.bucket / job["jobSpec"]["baseOutputDirectory"]["outputUriPrefix"][5:]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["tasks"] == ["chief", "worker:0", "worker:1"]
    [model] = (folder / "model").glob("*.keras")
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD, model], capture_output=True, text=True, check=True
    )
    assert loaded.stdout == "(3, 10)\n"

    # A line of code: Docker is not used, and only the layer is sent.
    with (setup.project.folder / "trainer/model.py").open("a") as file:
        file.write("# another line\n")
    done = setup.project.submit("--detach", **NO_DOCKER)
    assert "appending the code" in done.stderr
    digest = _image(setup.emulator.jobs()[0])
    assert digest != _image(job)

    # Nothing new: nothing is built.
    setup.project.run("cancel", **NO_DOCKER)
    done = setup.project.submit("--detach", **NO_DOCKER)
    assert "the registry has this image" in done.stderr
    assert _image(setup.emulator.jobs()[0]) == digest
    setup.project.run("cancel", **NO_DOCKER)


def _image(job):
    images = {pool["containerSpec"]["imageUri"] for pool in job["jobSpec"]["workerPoolSpecs"]}
    [image] = images
    assert "@sha256:" in image
    return image
