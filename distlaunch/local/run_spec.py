"""What `distlaunch local` is to run, as plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from distlaunch.job.model import Cluster
    from distlaunch.local.faults import Fault


@dataclass(frozen=True, slots=True)
class Module:
    """A Python module that is run as ``python -m`` would run it."""

    name: str
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """Any program, with its arguments."""

    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Container:
    """An image's entrypoint, with arguments for it."""

    image: str
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunSpec:
    """A job to run on this machine.

    Parameters
    ----------
    work_dir
        Where the tasks run.
    job_dir
        The job's folder, a local path or ``gs://…``.
    logs_dir
        Where the tasks' output and events go; always on this machine.
    env
        Variables for the tasks beside those of this process.
    restarts
        How many times the whole group is started again after a failure.
    faults
        What is to happen to tasks in the first attempt.
    audit
        Whether the tasks' program reports which examples it trains on.
    """

    name: str
    job_id: str
    cluster: Cluster
    program: Module | Command | Container
    work_dir: Path
    job_dir: str
    logs_dir: Path
    env: Mapping[str, str] = field(default_factory=dict)
    restarts: int = 0
    faults: tuple[Fault, ...] = ()
    audit: bool = False
