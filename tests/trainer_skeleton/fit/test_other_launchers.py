"""The trainer's wheel without distlaunch: tasks started by hand, and workers of Ray Train."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from typing import TYPE_CHECKING

import pytest

from ..conftest import config_of, environment_outside_clusters  # noqa: TID252

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

TRAIN = """
import keras
import numpy as np

keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(53, 4))
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
losses = model.fit(x, x.sum(1, keepdims=True), batch_size=10, epochs=2, verbose=0).history["loss"]
print("losses", losses)
"""
PROGRAM = """
import runpy
import distlaunch_trainer

with distlaunch_trainer.distributed_fit(job_dir="job"):
    runpy.run_path("train.py")
"""
RAY = """
import sys
import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.tensorflow import TensorflowTrainer

def train(config):
    import distlaunch_trainer
    with distlaunch_trainer.distributed_fit(job_dir=config["folder"] + "/job"):
        exec(open(config["folder"] + "/train.py").read())

folder, sockets = sys.argv[1:]
ray.init(num_cpus=2, include_dashboard=False, _temp_dir=sockets)
trainer = TensorflowTrainer(
    train,
    train_loop_config={"folder": folder},
    scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(storage_path=folder + "/ray"),
)
trainer.fit()
"""


@pytest.fixture(scope="module")
def python(checkout, tmp_path_factory) -> Path:
    """Return the Python of an environment with the trainer's wheel, and without distlaunch."""
    folder = tmp_path_factory.mktemp("alone")
    runtime = checkout / "trainer_skeleton" / "runtime"
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "-o", folder, runtime]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("distlaunch_trainer-*.whl")
    install = [sys.executable, "-m", "pip", "--python", "env", "install", "--no-deps", "-q", wheel]
    for words in ([sys.executable, "-m", "venv", "--without-pip", "env"], install):
        subprocess.run(words, cwd=folder, check=True, capture_output=True)
    [packages] = folder.glob("env/lib/python*/site-packages")
    (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder / "env" / "bin" / "python"


@pytest.fixture(scope="module")
def alone(python, tmp_path_factory) -> list[float]:
    """The losses of the script as plain Keras trains it, in one process."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "train.py").write_text(TRAIN)
    done = subprocess.run(
        [python, "train.py"], cwd=folder, check=True, capture_output=True, text=True
    )
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("losses"))
    return json.loads(line.removeprefix("losses"))


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def losses_in(folder: Path) -> list[float]:
    summary = json.loads((folder / "job/summary.json").read_text())
    assert (summary["replicas"], summary["examples_per_epoch"]) == (2, 53)
    assert (folder / "job/model/model.keras").is_file()
    return [epoch["logs"]["loss"] for epoch in summary["epochs"]]


def test_tasks_that_are_started_by_hand(python, alone, folder):
    """One by the command, the other by a program."""
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    words = [["-m", "distlaunch_trainer.fit", "--job-dir=job", "train.py"], ["-c", PROGRAM]]
    tasks = [
        subprocess.Popen(
            [python, *options],
            cwd=folder,
            env=environment_outside_clusters() | {"TF_CONFIG": config_of(ports, rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, options in enumerate(words)
    ]
    outputs = [task.communicate(timeout=120)[0] for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0], "\n".join(outputs)
    assert losses_in(folder) == pytest.approx(alone, abs=1e-6)


@pytest.mark.skipif(
    not {"DISTLAUNCH_TEST_ENGINE", "DISTLAUNCH_TEST_LAWS"} & {*os.environ},
    reason="Ray takes as long as 50 other tests: it runs in CI and in `make laws`",
)
def test_workers_of_ray_train(python, alone, folder):
    """Its own example with Keras fails: https://github.com/ray-project/ray/issues/47464."""
    (folder / "train_on_ray.py").write_text(RAY)
    sockets = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # the path of a socket must be short
    environ = environment_outside_clusters() | {
        "RAY_USAGE_STATS_ENABLED": "0",
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
    }
    words = [python, "train_on_ray.py", folder, sockets]
    try:
        done = subprocess.run(
            words, cwd=folder, env=environ, check=False, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        shutil.rmtree(sockets, ignore_errors=True)
    assert losses_in(folder) == pytest.approx(alone, abs=1e-6)
