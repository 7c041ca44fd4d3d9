"""Projects for the tests that train: created by `init`, then changed as a user would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import keras
import numpy as np
import pytest
from json_schemas import load_checked

from distlaunch import scaffold

from ..conftest import environment_outside_clusters  # noqa: TID252

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensorflow_host import PythonHost, Result


HERE = Path(__file__).parent

# `make laws` runs the long tests too, and some of them once more with two virtual devices per task.
LAWS = bool(os.environ.get("DISTLAUNCH_TEST_LAWS"))
TWO_DEVICES = bool(os.environ.get("DISTLAUNCH_TEST_TWO_DEVICES"))


@dataclass(frozen=True)
class Project:
    """A project folder, and the commands that a user would run in it."""

    folder: Path
    host: PythonHost
    environment: dict[str, str] = field(default_factory=dict)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def replace(self, name: str, old: str, new: str) -> None:
        text = (self.folder / name).read_text()
        assert old in text
        self.write(name, text.replace(old, new))

    def job_dir(self, job: str) -> str:
        return job if "://" in job else str(self.folder / job)

    def local(self, job: str, *arguments: str, code: int | None = 0) -> Result:
        """Run `distlaunch local` with a job folder; check its exit code unless it is None."""
        devices = ("--devices", "2") if TWO_DEVICES and _is_cluster(arguments) else ()
        folder = self.job_dir(job)
        result = self.run("distlaunch", "local", "--job-dir", folder, *devices, *arguments)
        assert code is None or result.code == code, result.text
        return result

    def trainer(self, *arguments: str, code: int = 0, **environment: str) -> Result:
        """Run the trainer without the launcher, as one process; check its exit code."""
        result = self.run("trainer.task", *arguments, **environment)
        assert result.code == code, result.text
        return result

    def run(self, module: str, *arguments: str, **environment: str) -> Result:
        """Do what ``python -m module arguments`` does in the project folder."""
        env = environment_outside_clusters() | self.environment | environment
        return self.host.run(module, *arguments, cwd=self.folder, env=env)

    def summary(self, job: str) -> dict:
        return load_checked("summary", (self.folder / job / "summary.json").read_text())

    def events(self, job: str, task: str, attempt: int = 1) -> list[dict]:
        path = self.folder / job / f"task-logs/attempt-{attempt}/{task}.events.jsonl"
        return [load_checked("events", line) for line in path.read_text().splitlines()]

    def weights(self, job: str) -> np.ndarray:
        model = keras.models.load_model(self.folder / job / "model/model.keras")
        return np.concatenate([w.ravel() for w in model.get_weights()])

    def check_model(self, job: str, *input_shape: int, **environment: str) -> None:
        """Check that plain Keras loads the trained model and predicts what its SavedModel does.

        The input is the project's first batch of validation data, or random if there is a shape.
        """
        shutil.copy(HERE / "check_model.py", self.folder)
        model = f"{self.job_dir(job)}/model"
        result = self.run("check_model", model, *map(str, input_shape), **environment)
        assert result.code == 0, result.text

    def own_tests(self) -> None:
        """Run the project's tests."""
        result = self.run("pytest", "tests", "-q", "-p", "no:cacheprovider", "--rootdir=.")
        assert result.code == 0, result.text
        assert " passed" in result.out
        assert "skipped" not in result.out


def arrays_in(path: Path) -> list[np.ndarray]:
    with np.load(path) as values:
        return [values[name] for name in values.files]


@contextmanager
def float64_by_default() -> Iterator[None]:
    """Let Keras read data as float64.

    Keras keeps the policy of layers that it makes of the first default, so it is made before.
    """
    keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    try:
        yield
    finally:
        keras.config.set_floatx("float32")


def _is_cluster(arguments: tuple[str, ...]) -> bool:
    return ("--workers", "1") not in pairwise(arguments)


# A model and data that show any difference: an odd number of examples, so that the last batch is
# smaller than some clusters, weights that regularisers act on, and smooth layers.
REGRESSION_MODEL = """
import keras

def create_model():
    layers = keras.layers
    model = keras.Sequential([
        layers.Input((6,)),
        layers.Dense(8, activation="tanh", kernel_regularizer=keras.regularizers.L2(1e-2),
                     activity_regularizer=keras.regularizers.L2(1e-2)),
        layers.Dense(1),
    ])
    model.compile(keras.optimizers.Adam(1e-2, global_clipnorm=0.5), "mse", metrics=["mae"])
    return model
"""

REGRESSION_DATA = """
import numpy as np
from distlaunch_trainer import Arrays

def _arrays(examples, seed):
    random = np.random.default_rng(seed)
    x = random.normal(size=(examples, 6))
    y = np.sin(x.sum(axis=1, keepdims=True))
    return Arrays(x, y, 0.5 + random.random(examples))

def training():
    return _arrays(121, 1)

def validation():
    return _arrays(37, 2)
"""


@pytest.fixture(scope="session")
def scaffolded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project created by `init`; tests copy it."""
    folder = tmp_path_factory.mktemp("scaffolded") / "digits"
    subprocess.run([sys.executable, "-m", "distlaunch", "init", str(folder)], check=True)
    return folder


@pytest.fixture(scope="session")
def new_starter(
    tensorflow: PythonHost, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Project]:
    """Create a project from a starter, by its name."""

    def make(name: str) -> Project:
        folder = tmp_path_factory.mktemp("starter") / name
        scaffold.plan(folder, name).write(folder)
        return Project(folder, tensorflow)

    return make


@pytest.fixture(scope="session")
def new_project(
    scaffolded: Path, tensorflow: PythonHost, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Project]:
    """Make a project to change, by default with the starter's model and data."""

    def make(model: str | None = None, data: str | None = None) -> Project:
        folder = tmp_path_factory.mktemp("project") / "digits"
        shutil.copytree(scaffolded, folder)
        project = Project(folder, tensorflow)
        for name, text in {"trainer/model.py": model, "trainer/data.py": data}.items():
            if text is not None:
                project.write(name, text)
        return project

    return make


@pytest.fixture
def project(new_project: Callable[..., Project]) -> Project:
    return new_project()


@pytest.fixture(scope="session")
def regression(new_project: Callable[..., Project]) -> Project:
    """A small project that every cluster must train to the same weights."""
    return new_project(REGRESSION_MODEL, REGRESSION_DATA)


# 121 examples in batches of 12: the last batch has one row, fewer than there are workers.
SETTINGS = ("--epochs=3", "--global-batch-size=12", "--precision=float64", "--checkpoint-every=4")


@pytest.fixture(scope="session")
def one_worker(regression: Project) -> tuple[np.ndarray, dict]:
    """The weights that one worker ends with, and its summary."""
    regression.local("one", "--workers", "1", "--", *SETTINGS)
    return regression.weights("one"), regression.summary("one")


# A company's proxy, through which no peer can be reached, a backend that is not installed, and GPUs
# that TensorFlow does not see.
SHELL = {
    "http_proxy": "http://127.0.0.1:1",
    "https_proxy": "http://127.0.0.1:1",
    "KERAS_BACKEND": "torch",
    "CUDA_VISIBLE_DEVICES": "0,1,2",
}


@pytest.fixture(scope="session")
def three_workers(regression: Project) -> Result:
    """The job `three` of the regression."""
    in_shell = replace(regression, environment=SHELL)
    options = (*SETTINGS, "--allow-cpu", "--gpu-memory-growth")
    return in_shell.local("three", "--workers", "3", "--", *options)
