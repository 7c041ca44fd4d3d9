"""Calls to Google for the cloud checks, and the warnings for those that fail."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from distlaunch.checks.problem import Problem, warning
from distlaunch.engines.vertex import auth
from distlaunch.engines.vertex.api_errors import ROLE_CODES
from distlaunch.errors import Diagnostic, GoogleError
from distlaunch.refusals import CURRENT_ACCOUNT, DISABLED, NO_PROJECT, grant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlaunch.engines.vertex.client import Session
    from distlaunch.errors import DistlaunchError
    from distlaunch.job.launch import LaunchRequest
    from distlaunch.job.machine_catalogue import Catalogue
    from distlaunch.job.vertex.view import JobRequest

TIMEOUT = (3.0, 4.0)  # seconds: to connect, and between two bytes of the response
CONSOLE = "https://console.cloud.google.com"

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
    what = f"not checked: {Diagnostic(reason.where, reason.what).line}"
    return NotChecked(location, what, remedy, "unanswered", "warning", disabled_api)


def no_credentials(reason: GoogleError) -> Problem:
    """Return the warning that all cloud checks were skipped."""
    what = f"cloud checks skipped: {reason.what}"
    return warning("no-credentials", "google cloud", what, reason.remedy or _TRY_AGAIN)
