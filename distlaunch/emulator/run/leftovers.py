"""What is done so that no container outlives the emulator that started it.

Each emulator is an *owner*, whose name its containers and networks carry as a label: its machine
and a file, on which it holds a lock for as long as it lives; the system takes that back however it
ends. A guard, a process of its own, waits for the emulator's end and removes what carries its name.
What nobody removed, as after the machine lost its power, is removed by the next emulator there,
which can get the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import docker

LABEL = "distlaunch-emulator"
DONE = b"done"
_PREFIX = "distlaunch-emulator-"
_LATE = 1.0  # seconds in which the engine has done what the emulator asked for last
BOOT = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from distlaunch.emulator.run.leftovers import guard; guard()"
)


class Owner:
    """What this emulator is called, and the lock that says that it lives."""

    def __init__(self) -> None:
        descriptor, path = tempfile.mkstemp(prefix=_PREFIX, suffix=".lock")
        self._lock = os.fdopen(descriptor)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.name = f"{socket.gethostname()}:{path}"

    def close(self) -> None:
        """Be no owner any more."""
        _forget(self.name)
        self._lock.close()


def guard() -> None:
    """Wait until stdin ends, as it does with the emulator; then remove what the emulator left.

    Where the emulator has said `DONE` there is nothing left.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.stdin.buffer.read() == DONE:
        return
    import docker

    client = docker.from_env()
    for pause in (0.0, _LATE):
        time.sleep(pause)
        remove_of(client, sys.argv[1])
    client.close()
    _forget(sys.argv[1])


def remove_of_the_dead(client: docker.DockerClient) -> None:
    """Remove what emulators of this machine left that are no more."""
    for owner in _owners(client):
        if owner.startswith(f"{socket.gethostname()}:") and not _is_alive(owner):
            remove_of(client, owner)
            _forget(owner)


def remove_of(client: docker.DockerClient, owner: str) -> None:
    """Remove an emulator's containers and networks."""
    import docker.errors

    mine: dict[str, str | list[str] | bool] = {"label": f"{LABEL}={owner}"}
    for container in client.containers.list(all=True, filters=mine, ignore_removed=True):
        with contextlib.suppress(docker.errors.APIError):  # another was quicker
            container.remove(force=True, v=True)
    for network in client.networks.list(filters=mine):
        with contextlib.suppress(docker.errors.APIError):
            network.remove()


def _owners(client: docker.DockerClient) -> set[str]:
    ours: dict[str, str | list[str] | bool] = {"label": LABEL}
    containers = client.containers.list(all=True, filters=ours, ignore_removed=True)
    labels = [container.labels for container in containers]
    labels += [network.attrs["Labels"] for network in client.networks.list(filters=ours)]
    return {each[LABEL] for each in labels}


def _is_alive(owner: str) -> bool:
    try:
        with _lock_file(owner).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:  # it is held, or another user's
        return True
    return False


def _forget(owner: str) -> None:
    path = _lock_file(owner)
    if path.name.startswith(_PREFIX):
        path.unlink(missing_ok=True)


def _lock_file(owner: str) -> Path:
    return Path(owner.partition(":")[2])
