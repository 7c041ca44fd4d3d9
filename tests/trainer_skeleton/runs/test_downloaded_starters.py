"""Starters whose data are downloaded, on small data of the same format; and `tabular`."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ...small_datasets import noise, prepare_tfds, write_idx  # noqa: TID252 - tests are no package
from ..conftest import environment_outside_clusters  # noqa: TID252
from .conftest import LAWS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow


def write_mnist(folder: Path) -> dict[str, str]:
    (x_train, y_train), (x_test, y_test) = (
        noise(count, (28, 28), 10, seed=count) for count in (96, 32)
    )
    path = folder / "mnist.npz"
    np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return {"MNIST_FILE": str(path)}


def write_fashion_mnist(folder: Path) -> dict[str, str]:
    write_idx(folder / "datasets/fashion-mnist", {"train": 96, "t10k": 32})
    return {"KERAS_HOME": str(folder)}


def write_tfds(
    folder: Path, name: str, image: tuple[int, int, int], **counts: int
) -> dict[str, str]:
    prepare_tfds(name, folder, counts, image)
    return {"TFDS_DATA_DIR": str(folder), "IMAGE_SIZE": "32"}


@dataclass(frozen=True)
class Starter:
    """How a starter's data are written here, its arguments, and the steps of the run."""

    write_data: Callable[[Path], dict[str, str]]
    arguments: tuple[str, ...]
    steps: int
    # Keras reads KERAS_HOME when it is imported, so the launcher has to import it.
    in_new_process: bool = False


STARTERS = {
    "mnist": Starter(write_mnist, ("--epochs=4", "--global-batch-size=32"), 12),
    "tabular": Starter(lambda _: {}, () if LAWS else ("--epochs=4",), 340 if LAWS else 68),
}
LARGE = {  # networks that take a minute of a core to build
    "cassava-resnet50": Starter(
        partial(write_tfds, name="cassava", image=(40, 30, 3), train=14, validation=6, test=5),
        ("--epochs=1", "--batch-size=4", "--steps-per-epoch=2"),
        2,
    ),
    "cats-mobilenet": Starter(
        partial(write_tfds, name="cats_vs_dogs", image=(40, 50, 3), train=20),
        ("--epochs=1", "--batch-size=4", "--precision=float32"),
        2,
    ),
}
LONG = LARGE | {  # `make laws` trains them
    "svhn": Starter(
        partial(write_tfds, name="svhn_cropped", image=(32, 32, 3), train=60, test=20),
        ("--epochs=2", "--batch-size=9"),
        6,
    ),
    "fashion-mnist": Starter(
        write_fashion_mnist, ("--epochs=2", "--global-batch-size=32"), 6, in_new_process=True
    ),
}


@pytest.mark.parametrize("name", {**STARTERS, **(LONG if LAWS else {})})
def test_two_workers_train_the_starter(name, new_starter, tmp_path):
    starter = (STARTERS | LONG)[name]
    project = replace(new_starter(name), environment=starter.write_data(tmp_path))
    arguments = ("--workers=2", "--", *starter.arguments)
    run = run_in_new_process if starter.in_new_process else type(project).local
    out = run(project, "job", *arguments).out
    summary = project.summary("job")
    assert (summary["tasks"], summary["steps"]) == (["chief", "worker:0"], starter.steps)
    logs = summary["epochs"][-1]["logs"]
    assert np.isfinite([logs["loss"], logs["val_loss"]]).all()
    project.check_model("job", *((2, 28, 28, 1) if starter.in_new_process else ()))
    if LAWS and name not in LARGE and not starter.in_new_process:
        project.own_tests()
    if name == "mnist":
        assert "chief    | learning rate of epoch 3: 0.001\n" in out
        assert "chief    | learning rate of epoch 4: 0.0001\n" in out
    if name == "svhn":
        assert summary["test"].keys() == {"loss", "accuracy"}
    if LAWS and name == "tabular":
        assert logs["val_accuracy"] >= 0.97
        assert "(0.97 or more)" in (project.folder / "README.md").read_text()


@dataclass(frozen=True)
class Output:
    out: str


def run_in_new_process(project, job, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "distlaunch", "local", "--job-dir", job, *arguments],
        cwd=project.folder,
        env=environment_outside_clusters() | project.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Output(done.stdout)


if LAWS:

    def test_svhn_by_a_gradient_step_has_the_results_of_the_compiled_model(new_starter, tmp_path):
        starter, results = LONG["svhn"], []
        environment = starter.write_data(tmp_path)
        for variables in ({}, {"CUSTOM_LOOP": "1"}):
            project = replace(new_starter("svhn"), environment=environment | variables)
            project.replace("trainer/model.py", "Dropout(0.3)", "Dropout(0.0)")
            project.local("job", "--workers=2", "--", *starter.arguments)
            results.append([epoch["logs"] for epoch in project.summary("job")["epochs"]])
        for compiled, custom in zip(*results, strict=True):
            assert custom == pytest.approx(compiled, abs=1e-3)


LOOK = """
from distlaunch_trainer import first_batch
from trainer import data

for part in (data.training, data.validation, data.test):
    images, labels = next(iter(first_batch(part, 2)))
    print(images.shape, images.dtype.name, labels.shape, float(images[0, 0, 0, 0]) != 0)
"""


@pytest.mark.parametrize("name", LARGE)
def test_data_of_large_networks(name, new_starter, tmp_path):
    project = replace(new_starter(name), environment=LARGE[name].write_data(tmp_path))
    project.write("look.py", LOOK)
    result = project.run("look")
    labels = "(2, 1)" if name == "cats-mobilenet" else "(2,)"
    assert result.out == f"(2, 32, 32, 3) float32 {labels} True\n" * 3, result.text


OWN_DATASET = """
import os
import tensorflow as tf
import tensorflow_datasets as tfds
from distlaunch_trainer import Tfds


class Squares(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")
    code_path = None  # beside which checksums of downloads would be

    def _info(self):
        x = tfds.features.Tensor(shape=(1,), dtype=tf.float32)
        features = tfds.features.FeaturesDict({"x": x, "y": tf.float32})
        return self.dataset_info_from_configs(features=features, supervised_keys=("x", "y"))

    def _split_generators(self, _):
        print("generating for", os.environ["TF_CONFIG"].partition('"task"')[2], flush=True)
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for number in range(50):
            yield number, {"x": [number / 50], "y": number * number / 2500}


def training():
    return Tfds("squares", "train[:90%]", data_dir="tfds")


def validation():
    return Tfds("squares", "train[90%:]", data_dir="tfds")
"""

OWN_MODEL = """
import keras


def create_model():
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model
"""


def test_the_chief_prepares_a_dataset(new_project):
    project = new_project(OWN_MODEL, OWN_DATASET)
    arguments = ("--workers=2", "--audit", "--", "--epochs=1", "--cache=memory")
    out = project.local("job", *arguments).out
    (generating,) = [line for line in out.splitlines() if "generating for" in line]
    assert generating.startswith("chief ")
    assert re.search(r"^chief +\| preparing squares in .*tfds/squares/1.0.0$", out, re.MULTILINE)
    assert "each of 45 examples was seen exactly once" in out
    data = project.summary("job")["data"]["training"]
    assert (data["kind"], data["name"], data["examples"]) == ("tfds", "squares/1.0.0", 45)
