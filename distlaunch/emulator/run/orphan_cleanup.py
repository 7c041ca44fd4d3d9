"""Removes the containers of an emulator that was killed.

Each emulator holds a lock on a file for as long as it lives; the system releases it however the
emulator ends. Containers and networks have the file as a label. An emulator that starts removes
those of this machine whose lock it can get.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import docker

LABEL = "distlaunch-emulator"
_PREFIX = "distlaunch-emulator-"


class EmulatorLock:
    """The lock of this emulator; `name` is the value of its label."""

    def __init__(self) -> None:
        descriptor, path = tempfile.mkstemp(prefix=_PREFIX, suffix=".lock")
        self._file = os.fdopen(descriptor)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self.name = f"{socket.gethostname()}:{path}"

    def release(self) -> None:
        _lock_file(self.name).unlink(missing_ok=True)
        self._file.close()


def remove_orphans(client: docker.DockerClient) -> None:
    """Remove what emulators of this machine left that do not run any more."""
    labelled: dict[str, str | list[str] | bool] = {"label": LABEL}
    containers = client.containers.list(all=True, filters=labelled, ignore_removed=True)
    labels = [container.labels for container in containers]
    labels += [network.attrs["Labels"] for network in client.networks.list(filters=labelled)]
    for name in {each[LABEL] for each in labels}:
        if name.startswith(f"{socket.gethostname()}:{tempfile.gettempdir()}/{_PREFIX}"):
            lock = _lock_file(name)
            if not _is_held(lock):
                remove_labelled(client, name)
                lock.unlink(missing_ok=True)


def remove_labelled(client: docker.DockerClient, name: str) -> None:
    """Remove the containers and networks of an emulator."""
    import docker.errors

    labelled: dict[str, str | list[str] | bool] = {"label": f"{LABEL}={name}"}
    for container in client.containers.list(all=True, filters=labelled, ignore_removed=True):
        with contextlib.suppress(docker.errors.APIError):  # it is being removed already
            container.remove(force=True, v=True)
    for network in client.networks.list(filters=labelled):
        with contextlib.suppress(docker.errors.APIError):
            network.remove()


def _is_held(lock: Path) -> bool:
    try:
        with lock.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:  # it is held, or another user's
        return True
    return False


def _lock_file(name: str) -> Path:
    return Path(name.partition(":")[2])
