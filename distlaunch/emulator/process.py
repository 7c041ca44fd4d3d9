"""Replicas as processes on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.emulator.running import Site, Work


class ProcessMachines:
    """Runs replicas as processes in the project's folder, with ports on loopback.

    Parameters
    ----------
    project_dir
        Where they run; its distlaunch.yaml names the module of replicas without a command.
    endpoint
        The emulator's own ``http://127.0.0.1:PORT``, where its storage is found: ``gs://`` of
        TensorFlow and of Google's client is led there.
    """

    def __init__(self, project_dir: Path, endpoint: str) -> None:
        raise NotImplementedError

    def site(self, work: Work) -> Site:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
