"""Calls to Google for the cloud checks, warnings for those that fail, and the project's checks."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from distlaunch.checks.problem import Problem, error, warning
from distlaunch.engines.vertex import auth
from distlaunch.engines.vertex.api_errors import ROLE_CODES
from distlaunch.errors import Diagnostic, GoogleError
from distlaunch.job import vertex
from distlaunch.refusals import CURRENT_ACCOUNT, DISABLED, NO_PROJECT, grant
from distlaunch.text import join_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distlaunch.engines.vertex.client import Session
    from distlaunch.errors import DistlaunchError
    from distlaunch.job.launch import LaunchRequest
    from distlaunch.job.machine_catalogue import Catalogue
    from distlaunch.job.vertex.view import JobRequest

TIMEOUT = (3.0, 4.0)  # seconds: to connect, and between two bytes of the response
CONSOLE = "https://console.cloud.google.com"

_READ_LOGS = "logging.logEntries.list"
APIS = ("aiplatform", "logging", "storage")
_TRY_AGAIN = "try again later; the job may succeed"
_RETRY_DEADLINE = 2.0  # seconds, for calls that fail fast


@dataclass(frozen=True, slots=True)
class NotChecked(Problem):
    """A call that failed; `disabled_api` is the reason, if Google names one."""

    disabled_api: str = ""


@dataclass(frozen=True, slots=True)
class CloudContext:
    """The launch to check, and the session that calls Google."""

    launch: LaunchRequest
    request: JobRequest
    session: Session
    catalogue: Catalogue

    @property
    def project(self) -> str:
        """The job's project, quoted for a path."""
        return quote(self.request.project, safe="")

    @property
    def caller(self) -> str:
        """The caller for a message."""
        return auth.iam_member(self.session.credentials) or "your account"

    def call(self, method: str, service: str, path: str, **options: Any) -> dict[str, Any]:
        """Return the response of a call that changes nothing, see `Session.call`."""
        return self.session.call(
            method, service, path, retry_deadline=_RETRY_DEADLINE, timeout=TIMEOUT, **options
        )

    def missing_permissions(
        self, service: str, resource: str, permissions: Sequence[str]
    ) -> list[str]:
        """Return the permissions on a resource that the caller does not have."""
        wanted = {"permissions": list(permissions)}
        if service == "storage":
            response = self.call("GET", service, f"{resource}/iam/testPermissions", params=wanted)
        else:
            response = self.call("POST", service, f"{resource}:testIamPermissions", body=wanted)
        held = response.get("permissions") or ()
        return [permission for permission in permissions if permission not in held]

    def grant(self, command: str, role: str, member: str = "") -> str:
        """Return the remedy for a missing role; `command` is one of gcloud's, with its resource."""
        member = member or auth.iam_member(self.session.credentials) or CURRENT_ACCOUNT
        return grant(command, member, role)


def is_denied(error: GoogleError) -> bool:
    """Whether the caller has no role for a call, or the resource does not exist."""
    is_known = error.error_reason in (*ROLE_CODES, NO_PROJECT)
    return error.status == HTTPStatus.FORBIDDEN and is_known


def not_checked(location: str, reason: DistlaunchError, *, grant: str = "") -> Problem:
    """Return the warning for a check that failed; `grant` is the remedy if a role is missing."""
    remedy, disabled_api = reason.remedy or _TRY_AGAIN, ""
    if isinstance(reason, GoogleError):
        if reason.status == HTTPStatus.UNAUTHORIZED:
            return no_credentials(reason)
        remedy = grant if grant and is_denied(reason) else remedy
        disabled_api = reason.service if reason.error_reason == DISABLED else ""
    what = f"not checked: {Diagnostic(reason.what, where=reason.where).line}"
    return NotChecked(what, remedy, location, "unanswered", "warning", disabled_api)


def no_credentials(reason: GoogleError) -> Problem:
    """Return the warning that all cloud checks were skipped."""
    what = f"cloud checks skipped: {reason.what}"
    return warning("no-credentials", "google cloud", what, reason.remedy or _TRY_AGAIN)


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
    apis = [*APIS, "artifactregistry"] if with_images else [*APIS]
    apis += ["cloudbuild"] if context.launch.job.image.builder == "cloud-build" else []
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
