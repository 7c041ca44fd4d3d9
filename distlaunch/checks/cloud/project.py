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
    location = f"project {context.request.project}"
    refusal = None
    try:
        project = _get_project(context)
        is_missing = project.get("state", "ACTIVE") != "ACTIVE"  # about to be deleted
    except GoogleError as problem:
        refusal = problem
        is_missing = refusal.status == 404
    if is_missing:
        yield _missing(context)
        return
    kind = vertex.collection(context.launch.job)
    of_jobs = [f"aiplatform.{kind}.{verb}" for verb in ("create", "get", "list", "cancel")]
    wanted = [*of_jobs, _READ_LOGS]
    has_no_access = refusal is not None and is_denied(refusal)
    try:
        missing = context.missing_permissions(
            "cloudresourcemanager", f"projects/{context.project}", wanted
        )
    except GoogleError as problem:
        is_hidden = has_no_access and is_denied(problem) and _is_hidden_from_service_usage(context)
        yield _missing(context) if is_hidden else not_checked(location, problem)
        return
    if has_no_access and missing == wanted and _is_hidden_from_service_usage(context):
        yield _missing(context)
        return
    if refusal is not None:
        yield not_checked(location, refusal)
    yield from _permission_problems(context, missing)


def api_problems(context: CloudContext, *, with_images: bool) -> Iterator[Problem]:
    """Yield the APIs that are not enabled, of Artifact Registry only with the job's images."""
    project = context.request.project
    apis = (*_APIS, "artifactregistry") if with_images else _APIS
    names = [f"projects/{project}/services/{api}.googleapis.com" for api in apis]
    path = f"projects/{context.project}/services:batchGet"
    response = context.get("serviceusage", path, params={"names": names})
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
    response = context.get("cloudbilling", f"projects/{context.project}/billingInfo")
    if not response.get("billingEnabled"):
        yield error(
            "billing-off",
            f"project {project}",
            "no billing account",
            f"run 'gcloud billing projects link {project} --billing-account=ACCOUNT', or see "
            f"{CONSOLE}/billing/linkedaccount?project={project}",
        )


def project_number(context: CloudContext) -> str | None:
    """Return the project's number, None if the response has none."""
    number = str(_get_project(context).get("name", "")).rpartition("/")[2]
    return number if number.isdecimal() else None


def _get_project(context: CloudContext) -> dict[str, Any]:
    return context.get("cloudresourcemanager", f"projects/{context.project}")


def _is_hidden_from_service_usage(context: CloudContext) -> bool:
    path = f"projects/{context.project}/services/aiplatform.googleapis.com"
    try:
        context.get("serviceusage", path)
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
