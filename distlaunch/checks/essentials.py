"""What a job cannot be launched without, and what ``init`` left to be filled in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch.checks.problem import error
from distlaunch.errors import JobFileError
from distlaunch.job import vertex

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.problem import Problem
    from distlaunch.job.model import Job
    from distlaunch.order import Order

PLACEHOLDER_PROJECT = "my-project"
PLACEHOLDER_BUCKET = "gs://my-bucket"


def problems(order: Order) -> Iterator[Problem]:
    """Yield what keeps a job from being launched at all."""
    yield from placeholders(order.job, of_account=not order.is_for_emulator)
    job = order.job
    if job.project is None:
        yield error(
            "no-project",
            "project",
            "no project is said, and gcloud has none",
            "say project: in distlaunch.yaml, --project ID, or 'gcloud config set project ID'",
        )
    if job.region is None:
        yield error(
            "no-region",
            "region",
            "no region is said, and gcloud has none",
            "say region: in distlaunch.yaml, as us-central1, or --region R",
        )
    if vertex.needs_image(job):
        if job.image.repository is None:
            yield error(
                "no-image",
                "image",
                "no image is said, and no place for one",
                "say image.repository in distlaunch.yaml, as "
                "us-central1-docker.pkg.dev/PROJECT/training/NAME, or --image URI for one that is "
                "there",
            )
        if order.job_dir_of("ID") is None:
            yield error(
                "no-job-dir",
                "bucket",
                "no place is said for the job's output",
                "say bucket: in distlaunch.yaml, as gs://my-bucket, or --job-dir gs://BUCKET/FOLDER",
            )


def placeholders(job: Job, *, of_account: bool = True) -> Iterator[Problem]:
    """Yield what ``init`` left to be filled in; problems only where the cloud is meant.

    Parameters
    ----------
    job
        The job.
    of_account
        Whether project and bucket have to be those of an account: an emulator takes any.
    """
    if of_account and job.project == PLACEHOLDER_PROJECT:
        yield error(
            "placeholder-project",
            "project",
            f"{PLACEHOLDER_PROJECT!r} is a placeholder",
            "write your project's id, as 'gcloud config get project' tells it, or add "
            "--set project=ID",
        )
    if of_account and f"{job.bucket}/".startswith(f"{PLACEHOLDER_BUCKET}/"):
        yield error(
            "placeholder-bucket",
            "bucket",
            f"{PLACEHOLDER_BUCKET!r} is a placeholder",
            "write your own, as 'gcloud storage buckets list' tells it, or add "
            "--set bucket=gs://NAME",
        )
    repository = job.image.repository or ""
    if f"/{PLACEHOLDER_PROJECT}/" in repository and vertex.needs_image(job):
        yield error(
            "placeholder-repository",
            "image.repository",
            f"{PLACEHOLDER_PROJECT!r} in it is a placeholder",
            "write your own, as 'gcloud artifacts repositories list' tells it, or add "
            "--set image.repository=…",
        )


def refuse_what_cannot_be(order: Order) -> None:
    """See that a job can be launched at all.

    Raises
    ------
    JobFileError
        With all that speaks against it.
    """
    found = [problem.line for problem in problems(order)]
    if found:
        raise JobFileError(found)
