"""What pip installs into an image: a TensorFlow that fits the cluster's machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from distlaunch.job.model import Cluster


@dataclass(frozen=True, slots=True)
class Requirements:
    """A requirements file and the files that it takes in with ``-r`` and ``-c``.

    Parameters
    ----------
    name
        The first file's path, posix and relative to the project's folder.
    files
        The text of each file by its path, already made for the cluster.
    """

    name: str
    files: Mapping[str, str]


def read_requirements(folder: Path, name: str, *, gpu: bool) -> Requirements:
    """Read a requirements file and all that it takes in, made for CPUs or for GPUs.

    Raises
    ------
    ImageError
        If a file is missing or is no text, or asks for a folder or a file of this machine.
    """
    raise NotImplementedError


def for_cluster(text: str, *, gpu: bool) -> str:
    """Return requirements with the TensorFlow that a cluster's machines need.

    ``tensorflow`` and ``tensorflow[and-cuda]`` become ``tensorflow-cpu`` where there are no GPUs;
    ``tensorflow`` and ``tensorflow-cpu`` become ``tensorflow[and-cuda]`` where there are. Versions,
    markers and all other lines are kept, as is a line with a URL or with hashes.
    """
    raise NotImplementedError


def has_gpus(cluster: Cluster) -> bool:
    """Whether a machine of the cluster has an NVIDIA accelerator."""
    raise NotImplementedError
