"""The names of what is set up: those of distlaunch.yaml, or derived ones where it has none."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distlaunch.checks.required_fields import no_project, no_region, placeholders
from distlaunch.engines.vertex import auth
from distlaunch.errors import DistlaunchError, UsageError
from distlaunch.image.reference import GoogleRepository
from distlaunch.job import vertex
from distlaunch.job.load import FILE_NAME

if TYPE_CHECKING:
    from distlaunch.job.model import Job

_PROJECT_ID = re.compile(r"[a-z][a-z0-9-]+", re.ASCII)  # no number, and not of a domain
_NAME = "distlaunch"  # of the derived repository and service account


def complete_job(
    job: Job, project: str | None, region: str | None
) -> tuple[Job, dict[tuple[str, ...], str]]:
    """Return a job with all names that setup needs, and those that distlaunch.yaml does not have.

    `project` and `region` are those of the command line. Missing names and the placeholders of
    ``init`` are derived from the project's id.
    """
    if job.is_on_slurm:
        raise UsageError("engine: slurm needs nothing in Google Cloud; add --set engine=vertex")
    left = {problem.where for problem in placeholders(job)}
    project = project or (job.project if "project" not in left else None) or auth.default_project()
    region = region or job.region or auth.default_region()
    if not project or not region:
        raise DistlaunchError((no_region() if project else no_project()).line)
    if not _PROJECT_ID.fullmatch(project):
        remedy = "pass --project with the id that 'gcloud projects list' prints"
        raise DistlaunchError("not a project's id", where=project, remedy=remedy)
    derived: dict[tuple[str, ...], str] = {("project",): project} if "project" in left else {}
    if job.bucket is None or "bucket" in left:
        derived |= {("region",): region} if region != job.region else {}
        derived["bucket",] = f"gs://{project}-{_NAME}"
    if job.service_account is None or "service_account" in left:
        derived["service_account",] = f"{_NAME}@{project}.iam.gserviceaccount.com"
    has_repository = job.image.repository is not None and "image.repository" not in left
    if vertex.needs_image(job) and not has_repository:
        image = f"{GoogleRepository(project, region, _NAME)}/{job.name.lower()}"
        derived["image", "repository"] = image
    if derived and job.project is None:
        derived["project",] = project
    elif derived and "project" not in left and project != job.project:
        remedy = f"write project: {project}, or leave --project out"
        what = f"the file has project: {job.project}, and not {project}"
        raise DistlaunchError(what, where=FILE_NAME, remedy=remedy)
    data: dict[str, Any] = {path[0]: value for path, value in derived.items() if len(path) == 1}
    if repository := derived.get(("image", "repository")):
        data["image"] = replace(job.image, repository=repository)
    return replace(job, **{**data, "project": project, "region": region}), derived
