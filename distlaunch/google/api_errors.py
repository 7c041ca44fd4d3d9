"""Failed calls to Google → errors that name the cause and the remedy in one line.

https://cloud.google.com/apis/design/errors documents error responses, and
google/rpc/error_details.proto their `details`.
"""

from __future__ import annotations

import json
import math
import re
import socket
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from distlaunch.errors import GoogleError, RetryableError, causes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

LOGIN = "gcloud auth application-default login"
CURRENT_ACCOUNT = "user:$(gcloud config get account)"
"""The caller, as a shell expands it, where the credentials do not name one."""
DISABLED, NOT_PAID, NOT_CHARGED = "SERVICE_DISABLED", "BILLING_DISABLED", "USER_PROJECT_DENIED"
NO_PROJECT = "CONSUMER_INVALID"
RATE = "RATE_LIMIT_EXCEEDED"
QUOTA = "RESOURCE_EXHAUSTED"

_RETRYABLE = {408, 500, 502, 503, 504}
_CERTIFICATE = "CERTIFICATE_VERIFY_FAILED"
_API_NOT_ENABLED = "has not been used in project"
_MAX_QUOTED = 600  # characters of Google's own message
_PERMISSION = re.compile(r"'?\b([a-z]+\.[A-Za-z]+\.[A-Za-z]+)\b'?")
# Of Vertex AI, with status 400: the service account of a job.
_ACT_AS = re.compile(r"permission to act as service.account:? (?P<account>[^\s@]+@[\w.-]*\w)")
_RATE_MESSAGE = re.compile(
    r"per (second|minute|hour|day)|rate limit|resource has been exhausted", re.IGNORECASE
)
# A role that holds a permission or, where none is named, the usual ones of a service, by the
# prefix; the first match applies.
_ROLES = {
    "aiplatform": "roles/aiplatform.user",
    "logging": "roles/logging.viewer",
    "storage.objects.get": "roles/storage.objectViewer",
    "storage.objects.list": "roles/storage.objectViewer",
    "storage.buckets.get": "roles/storage.legacyBucketReader",
    "storage": "roles/storage.objectAdmin",
    "serviceusage.services.use": "roles/serviceusage.serviceUsageConsumer",
    "serviceusage": "roles/serviceusage.serviceUsageViewer",
    "iam": "roles/iam.serviceAccountUser",
    "artifactregistry.repositories.getIamPolicy": "roles/iam.securityReviewer",
    "artifactregistry.repositories.get": "roles/artifactregistry.reader",
    "artifactregistry.": "roles/artifactregistry.writer",
    "artifactregistry": "roles/artifactregistry.reader",
    "compute": "roles/compute.networkUser",
    "resourcemanager.projects": "roles/browser",
    "cloudresourcemanager": "roles/browser",
}
_BUCKET_ROLES = ("roles/storage.legacyBucketReader",)  # cannot be granted on a project


def token_error(error: Exception) -> GoogleError:
    """Return the error for a call that could not be signed."""
    from google.auth.exceptions import TransportError

    cause = root_cause(error)
    if isinstance(error, TransportError) or getattr(error, "retryable", False):
        return RetryableError(
            f"cannot get a token ({cause})", reason="UNREACHABLE", may_have_been_processed=False
        )
    return GoogleError(
        f"Google does not accept the credentials ({cause}); run '{LOGIN}'",
        status=401,
        reason="UNAUTHENTICATED",
    )


def connection_error(host: str, error: Exception, *, is_local: bool) -> GoogleError:
    """Return the error for a call without a response."""
    from requests.exceptions import ConnectTimeout

    cause = root_cause(error)
    if _CERTIFICATE in str(error):
        return GoogleError(
            f"the certificate of {host} is not trusted ({cause}); set REQUESTS_CA_BUNDLE to the "
            "file with your network's certificates"
        )
    was_sent = not isinstance(error, ConnectTimeout) and not _is_refused(error)
    hint = "; start 'distlaunch emulator' there" if is_local and not was_sent else ""
    return RetryableError(
        f"cannot reach {host} ({cause}){hint}",
        reason="UNREACHABLE",
        may_have_been_processed=was_sent,
    )


def unreadable_response(host: str, problem: str) -> RetryableError:
    """Return the error for a response that is not the API's, such as a proxy's page."""
    return RetryableError(f"{host}: invalid response: {problem}", status=200)


def root_cause(error: BaseException) -> str:
    """Return the message of the system, or else of the library, for a failure."""
    causes = list(causes_of(error))
    for cause in causes:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower()
    innermost = causes[-1]
    text = innermost.args[0] if innermost.args else innermost
    return " ".join(str(text).split()).rstrip(".")[:300] or type(innermost).__name__


def host_of(url: str) -> str:
    """Return the host of a URL, with the scheme if that is plain HTTP."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme == "http" else parts.netloc


def _is_refused(error: BaseException) -> bool:
    """Whether there was no connection, so that the call cannot have been processed."""
    return any(
        isinstance(cause, (ConnectionRefusedError, socket.gaierror))
        or type(cause).__name__ == "NewConnectionError"
        for cause in causes_of(error)
    )


class ErrorResponse:
    """An error response of one of Google's APIs, or of a proxy before it.

    The call was made for a project by a member in IAM's notation, such as ``user:…``.
    """

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
        *,
        service: str,
        host: str,
        project: str | None,
        member: str | None,
    ) -> None:
        error = _error_object(body)
        self._status = status
        self._service = service
        self._member = member or CURRENT_ACCOUNT
        self._message = _one_line(error.get("message")) or _plain_text(status, body)
        self._details = _objects(error.get("details"))
        info = self._detail("ErrorInfo")
        metadata = info.get("metadata")
        self._metadata = metadata if isinstance(metadata, dict) else {}
        self._consumer = self._fact("consumer").removeprefix("projects/") or project or "PROJECT"
        self._project = project or self._consumer
        self._reason = _one_line(error.get("status")) or _status_phrase(status)
        self._error_reason = _one_line(info.get("reason"))
        is_denied = status == HTTPStatus.FORBIDDEN
        if is_denied and not self._error_reason and _API_NOT_ENABLED in self._message:
            self._error_reason = DISABLED
        self._api = self._fact("service") or f"{service}.googleapis.com"
        self._status_line = f"{host} answers {status} ({self._message})"
        delay = str(self._detail("RetryInfo").get("retryDelay", "")).removesuffix("s")
        self._wait = _seconds(headers.get("Retry-After")) or _seconds(delay)

    def error(self) -> GoogleError:
        """Return the error for the user and for retries."""
        status, reason = self._status, self._reason
        is_busy = status == HTTPStatus.TOO_MANY_REQUESTS
        if is_busy:
            reason = RATE if self._is_rate_limit() else QUOTA
        if is_busy or status in _RETRYABLE:
            return RetryableError(
                self._quota_text() if reason == QUOTA else self._status_line,
                status=status,
                reason=reason,
                wait=self._wait,
                may_have_been_processed=not is_busy,
            )
        return GoogleError(
            self._text(),
            status=status,
            reason=reason,
            error_reason=self._error_reason,
            service=self._api,
        )

    def _is_rate_limit(self) -> bool:
        """Whether there were only too many calls in a short time."""
        if self._error_reason == RATE or self._wait or self._reason != QUOTA:
            return True
        return _RATE_MESSAGE.search(self._message) is not None

    def _text(self) -> str:
        if self._status == HTTPStatus.UNAUTHORIZED:
            return f"Google does not accept the credentials ({self._message}); run '{LOGIN}'"
        if self._status == HTTPStatus.FORBIDDEN:
            return self._forbidden()
        if self._status == HTTPStatus.NOT_FOUND:
            return f"not found: {self._message}"
        act_as = _ACT_AS.search(self._message)
        if act_as:
            return self._cannot_act_as(act_as["account"])
        violations = "; ".join(
            ": ".join(filter(None, map(_one_line, (part.get("field"), part.get("description")))))
            for part in _objects(self._detail("BadRequest").get("fieldViolations"))
        )
        if violations:
            return f"Google refuses the request: {_one_line(violations)}"
        return f"Google refuses ({self._reason}): {self._message}"

    def _quota_text(self) -> str:
        violations = _objects(self._detail("QuotaFailure").get("violations"))
        descriptions = (_one_line(violation.get("description")) for violation in violations)
        reasons = _one_line("; ".join(filter(None, descriptions)))
        return (
            f"the quota is exceeded: {reasons or self._message}; "
            "choose another machine or region, or request more at "
            f"https://console.cloud.google.com/iam-admin/quotas?project={self._project}"
        )

    def _forbidden(self) -> str:
        project = self._consumer
        if self._error_reason == DISABLED:
            links = _objects(self._detail("Help").get("links"))
            urls = (self._fact("activationUrl"), *(_one_line(link.get("url")) for link in links))
            library = f"https://console.cloud.google.com/apis/library/{self._api}?project={project}"
            return (
                f"{self._api} is not enabled in project {project}; run 'gcloud services enable "
                f"{self._api} --project={project}' and wait a minute, or see "
                f"{next(filter(None, urls), library)}"
            )
        if self._error_reason == NOT_PAID:
            return (
                f"project {project} has no billing account; run 'gcloud billing projects "
                f"link {project} --billing-account=ACCOUNT'"
            )
        if self._error_reason == NOT_CHARGED:
            return (
                f"calls cannot be charged to project {project} ({self._message}); "
                "run 'gcloud auth application-default set-quota-project PROJECT' with one of "
                f"yours, or {self._grant('roles/serviceusage.serviceUsageConsumer')}"
            )
        if self._error_reason == NO_PROJECT:
            return (
                f"project {project} does not exist, or these credentials have no access to it; "
                "set the id of your project (see 'gcloud projects list')"
            )
        return self._denied()

    def _denied(self) -> str:
        match = _PERMISSION.search(self._message)
        permission = self._fact("permission") or (match[1] if match else "")
        required = permission or self._service
        role = next((_ROLES[prefix] for prefix in _ROLES if required.startswith(prefix)), None)
        if not permission:
            remedy = f"; {self._grant(role)}" if role else ""
            return f"Google refuses ({self._reason}): {self._message}{remedy}"
        remedy = self._grant(role) if role else "request a role with it from the project's owner"
        resource = self._fact("resource") or f"project {self._project}"
        return f"the permission {permission} is missing on {resource}; {remedy}"

    def _cannot_act_as(self, account: str) -> str:
        grant = self._grant("roles/iam.serviceAccountUser", ("iam service-accounts", account))
        return f"no permission to run jobs as {account}, or it does not exist; {grant}"

    def _grant(self, role: str, on: tuple[str, str] | None = None) -> str:
        """Return how to grant a role on a resource, given as its group of commands and its name."""
        if role in _BUCKET_ROLES:
            on = ("storage buckets", "gs://BUCKET")
        group, name = on or ("projects", self._project)
        target = f"{group} add-iam-policy-binding {name}"
        command = f"gcloud {target} --member={self._member} --role={role}"
        return f"have an administrator run '{command}'"

    def _fact(self, name: str) -> str:
        return _one_line(self._metadata.get(name))

    def _detail(self, kind: str) -> dict[str, Any]:
        """Return the detail of a type of google.rpc, empty if there is none."""
        suffix = f"google.rpc.{kind}"
        matches = (item for item in self._details if str(item.get("@type", "")).endswith(suffix))
        return next(matches, {})


def _error_object(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if isinstance(content, list) and content:  # some of Google's servers wrap their errors
        content = content[0]
    error = content.get("error") if isinstance(content, dict) else None
    return error if isinstance(error, dict) else {}


def _plain_text(status: int, body: bytes) -> str:
    """Return the text of a response that is not Google's, such as a proxy's page."""
    text = _one_line(re.sub(r"<[^>]*>", " ", body[:4096].decode("utf-8", "replace")))
    return text[:200] or f"HTTP status {status}"


def _status_phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase.upper().replace(" ", "_")
    except ValueError:
        return str(status)


def _one_line(text: object) -> str:
    line = " ".join(text.split()) if isinstance(text, str) else ""
    return (line if len(line) <= _MAX_QUOTED else f"{line[:_MAX_QUOTED]}…").removesuffix(".")


def _seconds(text: str | None) -> float:
    """Return the seconds of a Retry-After header or RetryInfo; 0 for a date."""
    try:
        seconds = float(text or 0)
    except ValueError:
        return 0.0
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0


def _objects(value: object) -> list[dict[str, Any]]:
    items = value if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]
