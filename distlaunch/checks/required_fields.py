"""What a job cannot be launched without, and what ``init`` left to be filled in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from distlaunch.checks.problem import error, warning
from distlaunch.errors import JobFileError
from distlaunch.job import vertex

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.problem import Problem
    from distlaunch.job.model import Job
    from distlaunch.submit.plan import LaunchRequest

PLACEHOLDER_PROJECT = "my-project"
PLACEHOLDER_BUCKET = "gs://my-bucket"

_CONTAINER_REGISTRY = re.compile(r"([a-z]+\.)?gcr\.io")
_PARTS = ("PROJECT", "REPOSITORY", "NAME")  # of an image's name in Artifact Registry


def problems(order: LaunchRequest) -> Iterator[Problem]:
    """Yield what keeps a job from being launched at all."""
    job = order.job
    yield from placeholders(job, of_account=not order.is_for_emulator)
    if not order.is_for_emulator and _is_placeholder(order.requested_job_dir):
        key = f"vertex.{vertex.SPECS[vertex.collection(job)]}.baseOutputDirectory.outputUriPrefix"
        yield error(
            "placeholder-bucket",
            "--job-dir" if order.job_dir else key,
            f"{PLACEHOLDER_BUCKET!r} is a placeholder",
            "write your own, as 'gcloud storage buckets list' tells it",
        )
    yield from _repository_problems(job)
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
    if of_account and f"@{PLACEHOLDER_PROJECT}.iam." in (job.service_account or ""):
        yield error(
            "placeholder-project",
            "service_account",
            f"{PLACEHOLDER_PROJECT!r} in it is a placeholder",
            "write your own, as 'gcloud iam service-accounts list' tells it, or leave it out",
        )
    if of_account and _is_placeholder(job.bucket):
        yield error(
            "placeholder-bucket",
            "bucket",
            f"{PLACEHOLDER_BUCKET!r} is a placeholder",
            "write your own, as 'gcloud storage buckets list' tells it, or add "
            "--set bucket=gs://NAME",
        )
    for key, image, mend in _images(job):
        if f"/{PLACEHOLDER_PROJECT}/" in image:
            yield error(
                "placeholder-repository",
                f"image.{key}",
                f"{PLACEHOLDER_PROJECT!r} in it is a placeholder",
                f"write your own, as 'gcloud artifacts repositories list' tells it, or {mend}",
            )


def _is_placeholder(folder: str | None) -> bool:
    return f"{folder}/".startswith(f"{PLACEHOLDER_BUCKET}/")


def _repository_problems(job: Job) -> Iterator[Problem]:
    """Yield what speaks against the places of a job's images, as far as their names tell."""
    for key, image, _ in _images(job):
        host, _, path = _without_tag(image).partition("/")
        named = _named(path)
        if host.lower().endswith("-docker.pkg.dev") and len(named) < len(_PARTS):
            yield error(
                "repository-form",
                f"image.{key}",
                f"an image of Artifact Registry is HOST/PROJECT/REPOSITORY/NAME, and {image} "
                "lacks a part",
                f"write {'/'.join([host, *named, *_PARTS[len(named) :]])}",
            )
        elif key == "repository" and _CONTAINER_REGISTRY.fullmatch(host.lower()):
            yield _retired(job, host, named)


def _retired(job: Job, host: str, named: list[str]) -> Problem:
    project, *name = named
    return warning(
        "repository-retired",
        "image.repository",
        f"Container Registry has ended, and {host} is there only where Artifact Registry was set "
        "up to serve it",
        f"write {job.region or 'REGION'}-docker.pkg.dev/{project}/REPOSITORY/"
        f"{'/'.join(name) or job.name}; 'gcloud artifacts repositories list "
        f"--project={project.replace('/', ':')}' tells what there is",
    )


def _images(job: Job) -> Iterator[tuple[str, str, str]]:
    """Yield under which keys a job names images of its own, and them, and what else mends them."""
    if job.image.uri is not None:
        yield "uri", job.image.uri, "add --image URI"
    elif job.image.repository is not None and vertex.needs_image(job):
        yield "repository", job.image.repository, "add --set image.repository=…"


def _named(path: str) -> list[str]:
    """Return project, repository and image; an organisation's project is EXAMPLE.COM/PROJECT."""
    parts = path.split("/") if path else []
    is_of_organisation = "." in path.partition("/")[0]
    return ["/".join(parts[:2]), *parts[2:]] if is_of_organisation else parts


def _without_tag(image: str) -> str:
    return re.sub(r"(:[^/:]*)?(@.*)?$", "", image)


def raise_if_incomplete(order: LaunchRequest) -> None:
    """See that a job can be launched at all.

    Raises
    ------
    JobFileError
        With all that speaks against it.
    """
    found = [each.line for each in problems(order) if each.severity == "error"]
    if found:
        raise JobFileError(found)
