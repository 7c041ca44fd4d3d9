"""The bucket, the image repository, the service accounts and the existing images of a job."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from distlaunch.checks.cloud.context import TIMEOUT, get_project, not_checked
from distlaunch.checks.machines import mainland
from distlaunch.checks.problem import error, warning
from distlaunch.checks.project.dockerfile import program_problems
from distlaunch.engines.vertex.iam_policy import read_policy
from distlaunch.errors import GoogleError, ImageError
from distlaunch.image.entrypoint import read_config
from distlaunch.image.reference import Reference
from distlaunch.job import reduction_server, vertex
from distlaunch.text import join_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from distlaunch.checks.cloud.context import CloudContext
    from distlaunch.checks.problem import Problem
    from distlaunch.image.reference import GoogleRepository
    from distlaunch.job.model import Job

# Roles with artifactregistry.repositories.downloadArtifacts; custom roles may have it.
_ROLES_THAT_PULL = re.compile(
    r"roles/(artifactregistry\..+|owner|editor|viewer|aiplatform\.serviceAgent)"
    r"|(projects|organizations)/.+"
)
# https://docs.cloud.google.com/storage/docs/locations#location-mr has only us, eu and asia.
_MULTI_REGIONS = {"europe": "eu", "me": "eu", "africa": "eu", "asia": "asia", "australia": "asia"}


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that must exist, and the permissions that the caller needs."""

    name: str  # the location of its problems
    service: str  # of Google's API
    path: str
    permissions: tuple[str, ...]
    create: str  # the gcloud command that creates it
    bind: str  # the gcloud command that grants a role on it
    role: str  # has the permissions
    viewer_role: str  # may see it; empty if that is not needed
    codes: tuple[str, str]  # of the problems that it is missing, and that permissions are
    check: Callable[[Mapping[str, Any]], Iterator[Problem]]  # yields problems of an existing one


def resource_problems(context: CloudContext, resource: Resource) -> Iterator[Problem]:
    """Yield that a resource does not exist, is not suitable, or that permissions are missing."""
    refusal = None
    missing_code, denied_code = resource.codes
    try:
        response = context.call("GET", resource.service, resource.path)
    except GoogleError as problem:
        if problem.status == 404:
            yield error(missing_code, resource.name, "does not exist", f"run '{resource.create}'")
            return
        refusal = problem
    else:
        yield from resource.check(response)
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
    url = f"gs://{name}"
    regional = f"{url}-{region or 'REGION'}"
    options = f"--project={context.request.project or 'PROJECT'} --location={region or 'REGION'}"
    create = f"gcloud storage buckets create {{}} {options}"
    use_regional = f"run '{create.format(regional)}' and set bucket: {regional}"

    def check(response: Mapping[str, Any]) -> Iterator[Problem]:
        location = str(response.get("location", "")).lower()
        kind = response.get("locationType", "region")
        others = [name for name in context.launch.next_regions if name != location]
        if kind != "region" and not others:
            message = f"it is a {kind} bucket ({location}); a bucket in the job's region is faster"
            yield warning("bucket-not-regional", url, message, use_regional)
        elif kind == "region" and region and location and location != region:
            message = f"it is in {location}, and the job runs in {region}"
            remedy = f"{use_regional}, or add --region {location}"
            yield error("bucket-elsewhere", url, message, remedy)
        elif kind == "region" and others:
            message = (
                f"it is in {location}; a job in {join_names(others, 'or')} (scheduling.regions) "
                "reads and writes across regions, which is slower and billed, or is refused"
            )
            several = (
                f"gcloud storage buckets create {url}-several --location={multi_region(region)}"
            )
            remedy = f"run '{several}' and set bucket: {url}-several"
            yield warning("bucket-not-in-regions", url, message, remedy)

    verbs = ("create", "delete", "get", "list")
    return Resource(
        name=url,
        service="storage",
        path=bucket_path(name),
        permissions=tuple(f"storage.objects.{verb}" for verb in verbs),
        create=create.format(url),
        bind=f"storage buckets add-iam-policy-binding {url}",
        role="roles/storage.objectAdmin",
        viewer_role="roles/storage.legacyBucketReader",
        codes=("bucket-missing", "bucket-denied"),
        check=check,
    )


def repository(target: GoogleRepository) -> Resource:
    """Return the repository that the job's image is pushed to."""

    def check(response: Mapping[str, Any]) -> Iterator[Problem]:
        kind, mode = response.get("format", "DOCKER"), response.get("mode", "STANDARD_REPOSITORY")
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
        bind=_bind_repository(target),
        role="roles/artifactregistry.writer",
        viewer_role="roles/artifactregistry.reader",
        codes=("repository-missing", "repository-denied"),
        check=check,
    )


def service_account(context: CloudContext, email: str) -> Resource:
    """Return the service account that the job runs as."""
    name, _, domain = email.partition("@")
    project = domain.removesuffix(".iam.gserviceaccount.com") or context.request.project

    def check(response: Mapping[str, Any]) -> Iterator[Problem]:
        if response.get("disabled"):
            remedy = f"run 'gcloud iam service-accounts enable {email}'"
            yield error("account-denied", email, "it is disabled", remedy)

    return Resource(
        name=email,
        service="iam",
        path=account_path(email),
        permissions=("iam.serviceAccounts.actAs",),
        create=f"gcloud iam service-accounts create {name} --project={project}",
        bind=f"iam service-accounts add-iam-policy-binding {email}",
        role="roles/iam.serviceAccountUser",
        viewer_role="",
        codes=("account-missing", "account-denied"),
        check=check,
    )


def tracking_problems(context: CloudContext, name: str) -> Iterator[Problem]:
    """Yield that a TensorBoard instance or an experiment does not exist in the job's region.

    They are read with ``tensorboards.get`` and ``contexts.get`` of Vertex AI.
    """
    region, project = context.request.region, context.request.project
    try:
        context.call("GET", "aiplatform", name, region=region)
    except GoogleError as problem:
        if problem.status == 404 and "/tensorboards/" in name:
            create = f"gcloud ai tensorboards create --display-name=NAME --region={region}"
            remedy = f"run '{create}', or choose one of 'gcloud ai tensorboards list'"
            yield error("tensorboard-missing", name, "does not exist", remedy)
        elif problem.status == 404:
            short = name.rpartition("/")[2]
            create = (
                "from google.cloud import aiplatform; aiplatform.Experiment.create("
                f"'{short}', project='{project}', location='{region}')"
            )
            remedy = f'run python -c "{create}"'
            yield error("experiment-missing", name, "does not exist", remedy)
        else:
            bind = f"projects add-iam-policy-binding {project}"
            yield not_checked(name, problem, grant=context.grant(bind, "roles/aiplatform.viewer"))


def distance_problems(context: CloudContext, target: GoogleRepository) -> Iterator[Problem]:
    """Yield that a repository is on another continent than the job."""
    region = context.request.region
    if region and mainland(region) != mainland(target.location):
        remedy = _create_and_set(target._replace(location=region))
        message = (
            f"each machine in {region} pulls the image from {target.location}: slow and billed"
        )
        yield warning("repository-far", str(target), message, remedy)


def service_agent_problems(context: CloudContext, target: GoogleRepository) -> Iterator[Problem]:
    """Yield that Vertex AI's service agent, which pulls the images, has no visible access.

    Roles that an organisation or a group grants are not visible here.
    """
    is_own = target.project == context.request.project
    try:
        number = str(get_project(context).get("name", "")).rpartition("/")[2]
    except GoogleError:
        if is_own:
            return  # a problem of the project
        raise
    agent = f"service-{number}@gcp-sa-aiplatform.iam.gserviceaccount.com"
    members = {f"serviceAccount:{agent}", "allUsers", "allAuthenticatedUsers"}
    refusal = None
    places = (
        ("cloudresourcemanager", f"projects/{quote(target.project, safe='')}"),
        ("artifactregistry", repository_path(target)),
    )
    for service, path in places:
        try:
            bindings = read_policy(context.call, service, path).get("bindings") or []
        except GoogleError as problem:
            refusal, bindings = problem, []
        if any(
            _ROLES_THAT_PULL.fullmatch(str(binding.get("role")))
            and members & set(binding.get("members", ()))
            for binding in bindings
        ):
            return
    if refusal is None and number.isdecimal():
        message = f"Vertex AI's service agent {agent} has no visible access, and pulls the images"
        role, member = "roles/artifactregistry.reader", f"serviceAccount:{agent}"
        grant = context.grant(_bind_repository(target), role, member)
        yield warning("agent-cannot-pull", str(target), message, grant)
    elif refusal is not None and not is_own:
        yield not_checked(f"access of Vertex AI to {target}", refusal)


def multi_region(region: str) -> str:
    """Return the multi-region of Cloud Storage that a region is in, or the next one."""
    return _MULTI_REGIONS.get(mainland(region), "us")


def bucket_path(name: str) -> str:
    """Return the path of a bucket in Cloud Storage's API."""
    return f"b/{quote(name, safe='')}"


def account_path(email: str) -> str:
    """Return the path of a service account, of whichever project, in IAM's API."""
    return f"projects/-/serviceAccounts/{quote(email, safe='@')}"


def repository_path(target: GoogleRepository) -> str:
    """Return the path of a repository in Artifact Registry's API."""
    project = quote(target.project, safe="")
    return f"projects/{project}/locations/{target.location}/repositories/{target.repository}"


def _bind_repository(target: GoogleRepository) -> str:
    options = f"--project={target.project} --location={target.location}"
    return f"artifacts repositories add-iam-policy-binding {target.repository} {options}"


def _create_repository(target: GoogleRepository) -> str:
    options = f"--project={target.project} --location={target.location}"
    command = f"gcloud artifacts repositories create {target.repository}"
    return f"{command} --repository-format=docker {options}"


def _create_and_set(target: GoogleRepository) -> str:
    return f"run '{_create_repository(target)}' and set image.repository: {target}/NAME"


def named_images(context: CloudContext) -> list[Reference]:
    """Return the images that the job's pools name, but for that of Google's Reduction Server."""
    pools = [pool for pool in context.request.pools if pool.role != reduction_server.KEY]
    uris = dict.fromkeys(pool.image for pool in pools)
    return [image for uri in uris if (image := _parse(uri))]


def pushed_image(job: Job) -> Reference | None:
    """Return the image that is built for a job, without a tag; None if none is."""
    repository = job.image.repository if vertex.needs_image(job) else None
    return _parse(repository)


def image_problems(context: CloudContext, image: Reference) -> Iterator[Problem]:
    """Yield that an image does not exist, or is for other machines than the job's."""
    from distlaunch.image.registry.client import Registry
    from distlaunch.image.registry.manifests import WrongPlatform
    from distlaunch.image.registry.transport import RetryPolicy

    connect, read = TIMEOUT
    try:
        with Registry(image, policy=RetryPolicy(connect, read, retries=1)) as registry:
            contents = read_config(registry.image().config)
        for uri in {pool.image for pool in context.request.pools if _parse(pool.image) == image}:
            yield from program_problems(context.launch.job, contents, str(image), uri)
    except WrongPlatform as problem:
        if _runs_on_amd64(context, image):
            yield _image_error("image-architecture", image, problem)
    except ImageError as problem:
        if getattr(problem, "status", 0) in (404, 412):  # of a registry: no such image, or no more
            yield _image_error("image-missing", image, problem)
        else:
            yield not_checked(str(image), problem)


def _runs_on_amd64(context: CloudContext, image: Reference) -> bool:
    """Whether a machine with an image is for amd64, or unknown."""
    kinds = [
        context.catalogue.machines.get(pool.machine)
        for pool in context.request.pools
        if _parse(pool.image) == image
    ]
    return any(kind is None or kind.architecture == "amd64" for kind in kinds)


def _parse(text: str | None) -> Reference | None:
    try:
        return Reference.parse(text) if text else None
    except ImageError:
        return None  # another check reports it


def _image_error(code: str, image: Reference, problem: ImageError) -> Problem:
    return error(code, str(image), problem.what, problem.remedy)
