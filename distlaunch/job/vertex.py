"""Job → the request that Vertex AI takes, in Google's JSON names. Pure: nothing is asked or sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.job.model import Job

Collection = Literal["customJobs", "hyperparameterTuningJobs"]


def collection(job: Job) -> Collection:
    """Return where Vertex AI keeps such a job: with its tuned ones, or with all others."""
    raise NotImplementedError


def needs_image(job: Job) -> bool:
    """Whether some pool runs the job's own image, and none is named that is there already."""
    raise NotImplementedError


def output_directory(job: Job) -> str | None:
    """Return the ``gs://…`` folder that the job's own file names for its output, if it names one."""
    raise NotImplementedError


def request(
    job: Job, *, image: str | None, labels: Mapping[str, str], job_dir: str | None
) -> dict[str, Any]:
    """Return the body of the call that makes the job.

    Parameters
    ----------
    job
        The job.
    image
        What the pools run that run the job's own image; left out of the request where it is None.
    labels
        More labels, which win over the job's.
    job_dir
        The ``gs://…`` folder for the job's output, None for what the job's file says.
    """
    raise NotImplementedError
