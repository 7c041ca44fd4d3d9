"""Removes the containers of emulators that were killed.

Containers and networks carry the host and port of their emulator as a label. As long as it lives,
it listens there.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import docker

LABEL = "distlaunch-emulator"

Filters = dict[str, "str | list[str] | bool"]


def remove_orphans(client: docker.DockerClient) -> None:
    """Remove what emulators of this machine left that do not listen any more."""
    filters: Filters = {"label": LABEL}
    containers = client.containers.list(all=True, filters=filters, ignore_removed=True)
    networks = client.networks.list(filters=filters)
    labels = [container.labels for container in containers]
    labels += [network.attrs["Labels"] for network in networks]
    for emulator in {each[LABEL] for each in labels}:
        host, _, port = emulator.rpartition(":")
        if host == socket.gethostname() and port.isdecimal() and not _is_listening(int(port)):
            remove_labelled(client, emulator)


def remove_labelled(client: docker.DockerClient, emulator: str) -> None:
    """Remove the containers and networks of an emulator."""
    import docker.errors

    filters: Filters = {"label": f"{LABEL}={emulator}"}
    for container in client.containers.list(all=True, filters=filters, ignore_removed=True):
        with contextlib.suppress(docker.errors.APIError):  # it is being removed already
            container.remove(force=True, v=True)
    for network in client.networks.list(filters=filters):
        with contextlib.suppress(docker.errors.APIError):
            network.remove()


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
