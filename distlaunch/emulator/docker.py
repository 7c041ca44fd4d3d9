"""Replicas as containers of a Docker engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.emulator.running import Site, Work


class DockerMachines:
    """Runs replicas as containers, of one job in a network of its own.

    Parameters
    ----------
    storage
        The folder of the emulator's buckets, one folder a bucket: /gcs/BUCKET in a container.

    Raises
    ------
    DistlaunchError
        If there is no engine.
    """

    def __init__(self, storage: Path) -> None:
        raise NotImplementedError

    def site(self, work: Work) -> Site:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
