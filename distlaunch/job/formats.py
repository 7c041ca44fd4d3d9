"""A project's folder and what the command line says → a Job, whatever format it is written in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from distlaunch.job.model import Job


@dataclass(frozen=True, slots=True)
class Loaded:
    """A job as it was read.

    Parameters
    ----------
    job
        The job.
    notes
        What a translation changed or dropped, a line each with the reason.
    """

    job: Job
    notes: tuple[str, ...] = ()


def load_job(
    folder: Path,
    *,
    config: Path | None = None,
    name: str | None = None,
    region: str | None = None,
    image: str | None = None,
    sets: Sequence[str] = (),
    args: Sequence[str] = (),
) -> Loaded:
    """Read the job of a project.

    Parameters
    ----------
    folder
        The project's folder, with ``distlaunch.yaml``; that may be missing where `config` is given.
    config
        A file in one of Google's formats (AI Platform's ``trainingInput``; Vertex AI's
        CustomJobSpec, CustomJob or HyperparameterTuningJob; YAML or JSON). It takes the place of
        the cluster section, and what else it says wins over ``distlaunch.yaml``. ``${NAME}`` in it
        stands for a variable of the environment.
    name, region
        What wins over any file.
    image
        An image that is there already, for the pools without one of their own.
    sets
        ``a.b=c`` for any field of ``distlaunch.yaml``; they win over any file.
    args
        What is appended to the program's args.

    Raises
    ------
    JobFileError
        With every problem of the files and of `sets`.
    DistlaunchError
        If a file cannot be read.
    """
    raise NotImplementedError


def placeholders(job: Job) -> tuple[str, ...]:
    """Return what ``init`` left to be filled in, a line each with the remedy.

    These are problems only where the cloud is meant.
    """
    raise NotImplementedError
