"""The job's project: the caller's permissions, APIs and billing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlaunch.checks.cloud.context import CONSOLE, is_denied, not_checked
from distlaunch.checks.problem import error, warning
from distlaunch.errors import GoogleError
from distlaunch.job import vertex
from distlaunch.text import join_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.cloud.context import CloudContext
    from distlaunch.checks.problem import Problem

_READ_LOGS = "logging.logEntries.list"
_APIS = ("aiplatform", "logging", "storage")


def project_problems(context: CloudContext) -> Iterator[Problem]:
    """Yield that the project is missing, or the permissions in it that are.

    Google's response is the same for a project that does not exist and for one without access, so
    it is reported as missing only if no API knows it.
    """
    kind, path = vertex.collection(context.launch.job), f"projects/{context.project}"
    of_jobs = [f"aiplatform.{kind}.{verb}" for verb in ("create", "get", "list", "cancel")]
    wanted = [*of_jobs, _READ_LOGS]
    project: dict[str, Any] = {}
    missing: list[str] | None = None
    refusals = []
    try:
        project = get_project(context)
    except GoogleError as problem:
        refusals.append(problem)
    try:
        missing = context.missing_permissions("cloudresourcemanager", path, wanted)
    except GoogleError as problem:
        refusals.append(problem)
    is_deleted = project.get("state", "ACTIVE") != "ACTIVE"
    if is_deleted or any(refusal.status == 404 for refusal in refusals):
        yield _missing(context)
        return
    has_no_access = not project and missing in (None, wanted) and all(map(is_denied, refusals))
    if has_no_access and _is_hidden_from_service_usage(context):
        yield _missing(context)
        return
    if refusals:
        yield not_checked(f"project {context.request.project}", refusals[-1])
    yield from _permission_problems(context, missing or [])


def api_problems(context: CloudContext, *, with_images: bool) -> Iterator[Problem]:
    """Yield the APIs that are not enabled, of Artifact Registry only with the job's images."""
    project = context.request.project
    apis = (*_APIS, "artifactregistry") if with_images else _APIS
    names = [f"projects/{project}/services/{api}.googleapis.com" for api in apis]
    path = f"projects/{context.project}/services:batchGet"
    response = context.call("GET", "serviceusage", path, params={"names": names})
    for service in response.get("services") or []:
        if service.get("state") != "ENABLED":
            host = str(service.get("name")).rpartition("/")[2]
            yield error(
                "api-disabled",
                host,
                f"not enabled in project {project}",
                f"run 'gcloud services enable {host} --project={project}' and wait a minute",
            )


def billing_problems(context: CloudContext) -> Iterator[Problem]:
    """Yield that the project has no billing account."""
    project = context.request.project
    response = context.call("GET", "cloudbilling", f"projects/{context.project}/billingInfo")
    if not response.get("billingEnabled"):
        yield error(
            "billing-off",
            f"project {project}",
            "no billing account",
            f"run 'gcloud billing projects link {project} --billing-account=ACCOUNT', or see "
            f"{CONSOLE}/billing/linkedaccount?project={project}",
        )


def get_project(context: CloudContext) -> dict[str, Any]:
    """Return the project's resource; its name has the number."""
    return context.call("GET", "cloudresourcemanager", f"projects/{context.project}")


def _is_hidden_from_service_usage(context: CloudContext) -> bool:
    path = f"projects/{context.project}/services/aiplatform.googleapis.com"
    try:
        context.call("GET", "serviceusage", path)
    except GoogleError as refusal:
        return refusal.status == 404 or is_denied(refusal)
    return False


def _missing(context: CloudContext) -> Problem:
    return error(
        "project-missing",
        f"project {context.request.project}",
        f"it does not exist, or {context.caller} has no access to it",
        "set the id of your project (see 'gcloud projects list'), or run "
        "'gcloud auth application-default login' with another account",
    )


def _permission_problems(context: CloudContext, missing: list[str]) -> Iterator[Problem]:
    project = context.request.project
    location, command = f"project {project}", f"projects add-iam-policy-binding {project}"
    of_jobs = [permission for permission in missing if permission != _READ_LOGS]
    if of_jobs:
        message = f"{context.caller} does not have {join_names(of_jobs)}"
        remedy = context.grant(command, "roles/aiplatform.user")
        yield error("permission-missing", location, message, remedy)
    if _READ_LOGS in missing:
        message = f"{context.caller} does not have {_READ_LOGS}, so there will be no output"
        remedy = context.grant(command, "roles/logging.viewer")
        yield warning("permission-missing", location, message, remedy)
