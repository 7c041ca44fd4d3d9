"""What a kind of machine must do to run the replicas of a job.

A kind of machine (containers, processes) gives each run of a job a `Site`: addresses for all
replicas and what they share. There replicas are started, end by themselves or are stopped, and
nothing of them is left when the site is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from distlaunch.job.reduction_server import is_image
from distlaunch.job.tf_config import WORKER_POOLS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.job.model import Task

START_ERROR = 128
"""The exit code of what could not be started, as containers have it."""

Severity = Literal["INFO", "ERROR"]
Write = Callable[[Severity, str], None]
"""Gets what a replica wrote to stdout (INFO) or stderr (ERROR), line by line, without the end."""


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

    @property
    def name(self) -> str:
        """What logs and errors call it, as ``workerpool1-0``."""
        return f"{WORKER_POOLS[self.task.type]}-{self.task.index}"

    @property
    def is_started(self) -> bool:
        """Whether the emulator starts it: not Google's Reduction Server."""
        return not is_image(self.image)


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


@dataclass(frozen=True, slots=True)
class Ended:
    """How a replica ended.

    Parameters
    ----------
    code
        Its exit code, 128+n for signal n.
    out_of_memory
        Whether it was killed for want of memory.
    """

    code: int
    out_of_memory: bool = False


class Running(Protocol):
    """A replica that was started."""

    def stop(self, grace: float) -> None:
        """Send SIGTERM now, and SIGKILL after `grace` seconds; returns at once."""


class Site(Protocol):
    """Where one job's replicas run."""

    def start(self, replica: Replica, write: Write, ended: Callable[[Ended], None]) -> Running:
        """Start a replica, for the first time or again at the same address.

        Parameters
        ----------
        write
            Gets each line, from another thread.
        ended
            Is called once, from any thread and after the last line. What cannot be started ends
            with `START_ERROR`, and with the reason as a line.
        """

    def measurements(self) -> str:
        """Return what the primary replica wrote to CLOUD_ML_HP_METRIC_FILE, JSON lines."""

    def close(self) -> None:
        """Kill what still runs and remove all that was made for the job."""


class Machines(Protocol):
    """A kind of machine."""

    def site(self, work: Work, is_wanted: Callable[[], bool]) -> Site:
        """Make ready all that the replicas need: images, network or ports, folders.

        Parameters
        ----------
        is_wanted
            Says whether to go on; asked from time to time.

        Raises
        ------
        CannotRun
            If that fails, as where an image cannot be pulled, or is not wanted any more.
        """

    def close(self) -> None:
        """Remove whatever is left of any job; the emulator ends."""
