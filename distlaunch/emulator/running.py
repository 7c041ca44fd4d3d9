"""What a kind of machine must do to run the replicas of a job.

A kind of machine (containers, processes) gives each run of a job a `Site`: addresses for all
replicas and what they share. There replicas are started, end by themselves or are stopped, and
nothing of them is left when the site is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.job.model import Task

Severity = Literal["INFO", "ERROR"]
Write = Callable[[Severity, str], None]
"""Gets what a replica wrote, line by line and without the line's end."""


class CannotRun(Exception):
    """What a job asks for cannot be run; its text is what the job's error says."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica of a worker pool, as the job's specification has it.

    Parameters
    ----------
    image
        The container image, or the executor image of a Python package.
    command
        What replaces the image's entrypoint, if anything.
    args
        What the entrypoint is given; where there is a command, the image's own are not used.
    env
        The variables that the specification sets.
    module, packages
        The module in Python packages (``gs://…``) that a pythonPackageSpec names.
    """

    task: Task
    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    module: str | None = None
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """What is run together: a custom job, or one trial of a tuning job.

    Parameters
    ----------
    job_id
        The number at the end of the job's name, as a string.
    project_number
        The project's number, as a string.
    replicas
        All replicas, pool by pool; the first is the primary one.
    job_dir
        baseOutputDirectory (``gs://…``), of a trial with the trial's id in it, or None.
    trial
        The trial's id, None where it is no trial.
    """

    job_id: str
    project_number: str
    replicas: tuple[Replica, ...]
    job_dir: str | None = None
    trial: str | None = None


class Running(Protocol):
    """A replica that was started."""

    def stop(self, grace: float) -> None:
        """Send SIGTERM now, and SIGKILL after `grace` seconds; returns at once."""


class Site(Protocol):
    """Where one job's replicas run."""

    def start(self, replica: Replica, write: Write, ended: Callable[[int], None]) -> Running:
        """Start a replica, for the first time or again at the same address.

        Parameters
        ----------
        write
            Gets each line, from another thread.
        ended
            Is called once, from another thread and after the last line, with the exit code
            (128+n for signal n).

        Raises
        ------
        CannotRun
            If it cannot be started.
        """

    def close(self) -> None:
        """Kill what still runs and remove all that was made for the job."""


class Machines(Protocol):
    """A kind of machine."""

    def site(self, work: Work) -> Site:
        """Make ready all that the replicas need: images, network or ports, folders.

        Raises
        ------
        CannotRun
            If that fails, as where an image cannot be pulled.
        """

    def close(self) -> None:
        """Remove whatever is left of any job; the emulator ends."""
