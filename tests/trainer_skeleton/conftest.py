"""Fixtures to run the trainer, and to fill a disk."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.cluster.role import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tensorflow_host import PythonHost, Result

BASE = Path(__file__).parents[2] / "trainer_skeleton" / "base"


def config_of(ports: list[int], rank: int) -> str:
    """Return TF_CONFIG of the chief or the worker of a cluster of two on this machine."""
    chief, worker = (f"127.0.0.1:{port}" for port in ports)
    task = {"type": ("chief", "worker")[rank], "index": 0}
    return json.dumps({"cluster": {"chief": [chief], "worker": [worker]}, "task": task})


def task_of(
    rank: int,
    tasks: int,
    replicas: int = 1,
    counts: list[int] | None = None,
    *,
    is_equal: bool = True,
) -> SimpleNamespace:
    """Return a task of some that all have the same values; their batches in a pass are counts."""
    peers = tuple(f"worker:{number}" for number in range(tasks))

    def exchange(kind: str, value: Any, waits_for: str) -> list[Any]:
        if kind == "data" and counts:
            return [{**value, "length": count} for count in counts]
        return [value] * tasks

    return SimpleNamespace(
        replicas=tasks * replicas,
        local_replicas=replicas,
        replica_ids=range(rank * replicas, (rank + 1) * replicas),
        role=Role(peers[rank], peers),
        all_equal=lambda value: is_equal,
        rendezvous=SimpleNamespace(
            peers=peers,
            exchange=exchange,
        ),
        needs_static_shapes=False,
        # An iterator has the batches of each replica in turn.
        strategy=SimpleNamespace(distribute_datasets_from_function=lambda make, _: make(None)),
    )


def write_records(path: Path, records: Iterable[bytes], compression: str = "") -> None:
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(record)


def environment_outside_clusters() -> dict[str, str]:
    left_out = ("TF_CONFIG", "CLUSTER_SPEC", "DISTLAUNCH_", "AIP_")
    return {k: v for k, v in os.environ.items() if not k.startswith(left_out)}


@pytest.fixture
def run_code(tensorflow: PythonHost, tmp_path: Path) -> Callable[..., Result]:
    """Run code that can import the trainer in a fork of a process with TensorFlow."""
    (tmp_path / "trainer").symlink_to(BASE / "trainer")

    def run(code: str, *arguments: str, **environment: str) -> Result:
        (tmp_path / "program.py").write_text(code)
        env = environment_outside_clusters() | environment
        return tensorflow.run("program", *arguments, cwd=tmp_path, env=env)

    return run


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """A task without a cluster."""
    return Cluster(Role(), tf.distribute.get_strategy())


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Python, in an empty folder, so that it can import the trainer."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        env = environment_outside_clusters() | {"PYTHONPATH": str(BASE)} | environment
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False
        )

    return run


@pytest.fixture
def ports() -> list[int]:
    """Ports that were free a moment ago, all at once."""
    local = ("127.0.0.1", 0)
    with socket.create_server(local) as chief, socket.create_server(local) as worker:
        return [server.getsockname()[1] for server in (chief, worker)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "small-disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False).returncode:
        pytest.skip("FULL DISK NOT TESTED: only root can mount the small file system it takes")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
