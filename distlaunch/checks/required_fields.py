"""Settings that no job can be launched without, and placeholders that ``init`` left."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from distlaunch.checks.problem import error, warning
from distlaunch.errors import ImageError, JobFileError
from distlaunch.image.reference import Reference, is_google
from distlaunch.job import vertex
from distlaunch.job.vertex.view import job_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.problem import Problem
    from distlaunch.job.launch import LaunchRequest
    from distlaunch.job.model import Job

_PROJECT, _BUCKET = "placeholder-project", "placeholder-bucket"
_IMAGE = "placeholder-repository"
_MY_BUCKET = r"gs://my-bucket(/.*)?"
_IN_ACCOUNT = r".*@my-project\.iam\..*"
_IN_PROJECT = r".*/my-project/.*"
_YOUR_PROJECT = (
    "run 'distlaunch setup', or write your project's id ('gcloud config get project' prints it)"
)
_YOUR_ACCOUNT = "write your own ('gcloud iam service-accounts list' prints them), or leave it out"
_YOUR_BUCKET = (
    "run 'distlaunch setup', or write your bucket ('gcloud storage buckets list' prints them)"
)
_YOUR_REPOSITORY = (
    "run 'distlaunch setup', or write your own ('gcloud artifacts repositories list' prints them)"
)
_ANY_IMAGE = "add --image any/image:1: an emulator with --run-with process ignores it"
_REPOSITORY_PARTS = ("PROJECT", "REPOSITORY", "NAME")  # of an image in Artifact Registry
_CONTAINER_REGISTRY = re.compile(r"([a-z]+\.)?gcr\.io")


def problems(launch: LaunchRequest) -> Iterator[Problem]:
    """Yield what keeps a job from being launched at all."""
    job = launch.job
    if job.is_on_slurm:
        yield from _missing_settings(launch)
        return
    yield from placeholders(job, of_account=not launch.is_for_emulator)
    if not launch.is_for_emulator and re.fullmatch(_MY_BUCKET, launch.requested_job_dir or ""):
        key = f"vertex.{vertex.SPECS[vertex.collection(job)]}.baseOutputDirectory.outputUriPrefix"
        yield _placeholder(_BUCKET, "--job-dir" if launch.job_dir else key, _YOUR_BUCKET)
    yield from _image_name_problems(launch)
    yield from _repository_problems(job)
    yield from _missing_settings(launch)


def placeholders(job: Job, *, of_account: bool = True) -> Iterator[Problem]:
    """Yield the placeholders that ``init`` left; `of_account` is false where any account works."""
    repository = job.image.repository if vertex.needs_image(job) else None
    account = (
        (_PROJECT, "project", job.project, "my-project", f"{_YOUR_PROJECT}, or --set project=ID"),
        (_PROJECT, "service_account", job.service_account, _IN_ACCOUNT, _YOUR_ACCOUNT),
        (_BUCKET, "bucket", job.bucket, _MY_BUCKET, f"{_YOUR_BUCKET}, or --set bucket=gs://NAME"),
    )
    override = "--set image.repository=…"
    build = f"{_YOUR_REPOSITORY}, or {override}" if of_account else _ANY_IMAGE
    images = (
        (_IMAGE, "image.uri", job.image.uri, _IN_PROJECT, f"{_YOUR_REPOSITORY}, or --image URI"),
        (_IMAGE, "image.repository", repository, _IN_PROJECT, build),
    )
    for code, key, value, pattern, remedy in (*(account if of_account else ()), *images):
        if value and re.fullmatch(pattern, value):
            yield _placeholder(code, key, remedy)


def _placeholder(code: str, key: str, remedy: str) -> Problem:
    name = "gs://my-bucket" if code == _BUCKET else "my-project"
    return error(code, key, f"{name!r} is a placeholder", remedy)


def no_project() -> Problem:
    """Return the problem of a job, or of a command, without a project."""
    remedy = "set project: or --project ID, or run 'gcloud config set project ID'"
    return error("no-project", "project", "no project set", remedy)


def no_region() -> Problem:
    """Return the problem of a job, or of a command, without a region."""
    remedy = "set region: (e.g. us-central1) or --region R, or run 'gcloud config set ai/region R'"
    return error("no-region", "region", "no region set", remedy)


def cloud_build_problems(job: Job, *, is_for_emulator: bool = False) -> Iterator[Problem]:
    """Yield why Cloud Build cannot build the image of a job that requests it."""
    repository = job.image.repository
    if job.image.builder != "cloud-build" or repository is None or not vertex.needs_image(job):
        return
    builder, here = "image.builder", "build on this machine with --set image.builder=auto"
    if is_for_emulator:
        yield error("cloud-build-emulator", builder, "an emulator has no Cloud Build", here)
    if job.bucket is None:
        what = "no bucket set for the source and the log of Cloud Build"
        yield error("cloud-build-bucket", "bucket", what, "set bucket: gs://BUCKET")
    host = Reference.parse(repository).host
    if not is_google(host):
        what = f"Cloud Build pushes to Artifact Registry only, and the repository is in {host}"
        remedy = f"set image.repository: REGION-docker.pkg.dev/PROJECT/REPOSITORY/NAME, or {here}"
        yield error("cloud-build-registry", builder, what, remedy)


def no_slurm_folder() -> Problem:
    """Return the problem of a job on Slurm, or of a command, without a folder for jobs."""
    remedy = "set slurm: {folder: /shared/jobs}, a folder that all nodes share"
    return error("no-slurm-folder", "slurm.folder", "no folder set for the jobs on Slurm", remedy)


def _missing_settings(launch: LaunchRequest) -> Iterator[Problem]:
    job = launch.job
    if job.is_on_slurm:
        if job.slurm.folder is None:
            yield no_slurm_folder()
        if job.slurm.container and job.image.uri is None:
            what = f"no image set for {job.slurm.container}"
            yield error("no-image", "image.uri", what, "set image.uri or --image URI")
        return
    if job.project is None:
        yield no_project()
    if job.region is None:
        yield no_region()
    if vertex.needs_image(job):
        if job.image.repository is None:
            what = "no image set, and no repository for one"
            remedy = "set image.repository: HOST/PROJECT/REPOSITORY/NAME, or --image URI of one "
            yield error("no-image", "image", what, f"{remedy}that exists")
        if launch.job_dir_of("ID") is None:
            remedy = "set bucket: gs://BUCKET or --job-dir gs://BUCKET/FOLDER"
            yield error("no-job-dir", "bucket", "no bucket set for the job's output", remedy)
        yield from cloud_build_problems(job, is_for_emulator=launch.is_for_emulator)


def _image_name_problems(launch: LaunchRequest) -> Iterator[Problem]:
    """Yield images that no registry can have, such as ``<region>-docker.pkg.dev/…``."""
    for pool in job_request(launch).pools:
        if pool.image and (reason := _parse_error(pool.image)):
            key = "image.uri" if pool.image == launch.job.image.uri else pool.key("image")
            yield error("image-name", key, reason, "write the name of an image that exists")


def _parse_error(image: str) -> str | None:
    try:
        Reference.parse(image)
    except ImageError as problem:
        return str(problem)
    return None


def _repository_problems(job: Job) -> Iterator[Problem]:
    key = "uri" if job.image.uri is not None else "repository"
    image = job.image.uri or (job.image.repository if vertex.needs_image(job) else None)
    if image is None:
        return
    host, _, path = re.sub(r"(:[^/:]*)?(@.*)?$", "", image).partition("/")
    parts = path.split("/") if path else []
    if "." in path.partition("/")[0]:  # the project of an organisation, EXAMPLE.COM/PROJECT
        parts = ["/".join(parts[:2]), *parts[2:]]
    missing = _REPOSITORY_PARTS[len(parts) :]
    if host.lower().endswith("-docker.pkg.dev") and missing:
        what = f"an image of Artifact Registry is HOST/PROJECT/REPOSITORY/NAME, got {image}"
        remedy = f"write {'/'.join([host, *parts, *missing])}"
        yield error("repository-form", f"image.{key}", what, remedy)
    elif key == "repository" and _CONTAINER_REGISTRY.fullmatch(host.lower()):
        project, *name = parts
        what = f"Container Registry has ended; {host} exists only where Artifact Registry serves it"
        path = f"{project}/REPOSITORY/{'/'.join(name) or job.name}"
        remedy = f"write {job.region or 'REGION'}-docker.pkg.dev/{path}"
        yield warning("repository-retired", "image.repository", what, remedy)


def raise_if_incomplete(launch: LaunchRequest) -> None:
    """Raise JobFileError with every reason why a job cannot be launched at all."""
    errors = [problem for problem in problems(launch) if problem.severity == "error"]
    if errors:
        raise JobFileError(problems=errors)
