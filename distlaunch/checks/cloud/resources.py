"""The bucket, the image repository and the service account of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from distlaunch.checks.cloud.context import not_checked
from distlaunch.checks.machines.alternatives import mainland
from distlaunch.checks.problem import error, warning
from distlaunch.errors import GoogleError
from distlaunch.text import join_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from distlaunch.checks.cloud.context import CloudContext
    from distlaunch.checks.problem import Problem
    from distlaunch.image.reference import GoogleRepository


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that must exist, and the permissions that the caller needs.

    Parameters
    ----------
    name
        The location of its problems.
    service, path
        Of Google's API.
    create, bind
        The gcloud commands that create it, and that grant a role on it.
    role, viewer_role
        The role with the permissions, and that to see it; empty if that is not needed.
    codes
        Of the problems that it is missing, and that permissions are.
    check
        Yields the problems of an existing one.
    """

    name: str
    service: str
    path: str
    permissions: tuple[str, ...]
    create: str
    bind: str
    role: str
    viewer_role: str
    codes: tuple[str, str]
    check: Callable[[Mapping[str, Any]], Iterator[Problem]]


def resource_problems(context: CloudContext, resource: Resource) -> Iterator[Problem]:
    """Yield that a resource does not exist, is not suitable, or that permissions are missing."""
    refusal = None
    missing_code, denied_code = resource.codes
    try:
        found = context.get(resource.service, resource.path)
    except GoogleError as problem:
        if problem.status == 404:
            yield error(missing_code, resource.name, "does not exist", f"run '{resource.create}'")
            return
        refusal = problem
    else:
        yield from resource.check(found)
    missing = context.missing_permissions(resource.service, resource.path, resource.permissions)
    if missing:
        message = f"{context.caller} does not have {join_names(missing)}"
        remedy = context.grant(resource.bind, resource.role)
        yield error(denied_code, resource.name, message, remedy)
    elif refusal is not None and (resource.viewer_role or refusal.status != 403):
        grant = context.grant(resource.bind, resource.viewer_role)
        yield not_checked(resource.name, refusal, grant=grant)


def bucket(context: CloudContext, name: str) -> Resource:
    """Return the bucket for the job's output."""
    region = context.request.region
    project = context.request.project or "PROJECT"
    url = f"gs://{name}"

    def create(new_url: str) -> str:
        location = region or "REGION"
        return f"gcloud storage buckets create {new_url} --project={project} --location={location}"

    def check(found: Mapping[str, Any]) -> Iterator[Problem]:
        location = str(found.get("location", "")).lower()
        kind = found.get("locationType", "region")
        regional = f"{url}-{region or 'REGION'}"
        use_another = f"run '{create(regional)}' and set bucket: {regional}"
        if kind != "region":
            message = f"it is a {kind} bucket ({location}); a bucket in the job's region is faster"
            yield warning("bucket-not-regional", url, message, use_another)
        elif region and location and location != region:
            message = f"it is in {location}, and the job runs in {region}"
            remedy = f"{use_another}, or add --region {location}"
            yield error("bucket-elsewhere", url, message, remedy)

    return Resource(
        name=url,
        service="storage",
        path=f"b/{quote(name, safe='')}",
        permissions=tuple(
            f"storage.objects.{verb}" for verb in ("create", "delete", "get", "list")
        ),
        create=create(url),
        bind=f"storage buckets add-iam-policy-binding {url}",
        role="roles/storage.objectAdmin",
        viewer_role="roles/storage.legacyBucketReader",
        codes=("bucket-missing", "bucket-denied"),
        check=check,
    )


def repository(target: GoogleRepository) -> Resource:
    """Return the repository that the job's image is pushed to."""

    def check(found: Mapping[str, Any]) -> Iterator[Problem]:
        kind, mode = found.get("format", "DOCKER"), found.get("mode", "STANDARD_REPOSITORY")
        if kind != "DOCKER":
            message = f"it is for {kind} packages, not for images"
        elif mode not in ("STANDARD_REPOSITORY", "MODE_UNSPECIFIED"):
            message = f"it is a {mode.lower().replace('_', ' ')}, which accepts no push"
        else:
            return
        other = target._replace(repository=f"{target.repository}-images")
        yield error("repository-format", str(target), message, _create_and_set(other))

    return Resource(
        name=str(target),
        service="artifactregistry",
        path=repository_path(target),
        permissions=("artifactregistry.repositories.uploadArtifacts",),
        create=_create_repository(target),
        bind=bind_repository(target),
        role="roles/artifactregistry.writer",
        viewer_role="roles/artifactregistry.reader",
        codes=("repository-missing", "repository-denied"),
        check=check,
    )


def distance_problems(context: CloudContext, target: GoogleRepository) -> Iterator[Problem]:
    """Yield that a repository is on another continent than the job."""
    region = context.request.region
    if region and mainland(region) != mainland(target.location):
        yield warning(
            "repository-far",
            str(target),
            f"each machine in {region} pulls the image from {target.location}, which is slow and "
            "is billed",
            _create_and_set(target._replace(location=region)),
        )


def repository_path(target: GoogleRepository) -> str:
    """Return the path of a repository in Artifact Registry's API."""
    project = quote(target.project, safe="")
    return f"projects/{project}/locations/{target.location}/repositories/{target.repository}"


def bind_repository(target: GoogleRepository) -> str:
    """Return the gcloud command that grants a role on a repository."""
    return (
        f"artifacts repositories add-iam-policy-binding {target.repository} "
        f"--project={target.project} --location={target.location}"
    )


def _create_repository(target: GoogleRepository) -> str:
    return (
        f"gcloud artifacts repositories create {target.repository} --repository-format=docker "
        f"--project={target.project} --location={target.location}"
    )


def _create_and_set(target: GoogleRepository) -> str:
    return f"run '{_create_repository(target)}' and set image.repository: {target}/NAME"


def service_account(context: CloudContext, email: str) -> Resource:
    """Return the service account that the job runs as."""
    name, _, domain = email.partition("@")
    project = domain.removesuffix(".iam.gserviceaccount.com") or context.request.project

    def check(found: Mapping[str, Any]) -> Iterator[Problem]:
        if found.get("disabled"):
            remedy = f"run 'gcloud iam service-accounts enable {email}'"
            yield error("account-denied", email, "it is disabled", remedy)

    return Resource(
        name=email,
        service="iam",
        path=f"projects/-/serviceAccounts/{quote(email, safe='@')}",
        permissions=("iam.serviceAccounts.actAs",),
        create=f"gcloud iam service-accounts create {name} --project={project}",
        bind=f"iam service-accounts add-iam-policy-binding {email}",
        role="roles/iam.serviceAccountUser",
        viewer_role="",
        codes=("account-missing", "account-denied"),
        check=check,
    )
