"""The trainer's engine room, imported from the skeleton; helpers to run it and to fill a disk."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BASE = Path(__file__).parents[2] / "trainer_skeleton" / "base"

# `import trainer.distributed.…` finds its way by the package from here on: the path of the other
# tests stays as it is.
sys.path.insert(0, str(BASE))
import trainer.distributed  # noqa: E402, F401 - found by the path that is there just now

sys.path.remove(str(BASE))


@pytest.fixture
def trainer_environment() -> dict[str, str]:
    """The environment of a process that can import the trainer and is in no cluster."""
    left_out = ("TF_CONFIG", "CLUSTER_SPEC", "DISTLAUNCH_", "AIP_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
    return kept | {"PYTHONPATH": str(BASE)}


@pytest.fixture
def python(
    trainer_environment: dict[str, str], tmp_path: Path
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start Python, in an empty folder, so that it can import the trainer."""
    started = []

    def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=trainer_environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def ports() -> list[int]:
    """Ports that were free a moment ago, all at once."""
    sockets = [socket.socket() for _ in range(2)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    numbers = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return numbers


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
