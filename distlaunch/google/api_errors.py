"""Failed calls to Google → errors that name the cause and the remedy in one line.

https://cloud.google.com/apis/design/errors documents error responses, and
google/rpc/error_details.proto their `details`.
"""

from __future__ import annotations

import json
import math
import re
import socket
import time
from email.utils import mktime_tz, parsedate_tz
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from distlaunch.errors import GoogleError, RetryableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LOGIN = "gcloud auth application-default login"
CURRENT_ACCOUNT = "user:$(gcloud config get account)"
"""The caller, as a shell expands it, where the credentials do not name one."""
DISABLED, NOT_PAID, NOT_CHARGED = "SERVICE_DISABLED", "BILLING_DISABLED", "USER_PROJECT_DENIED"
RATE = "RATE_LIMIT_EXCEEDED"
QUOTA = "RESOURCE_EXHAUSTED"
INVALID = "INVALID_ANSWER"

_RETRYABLE = {408, 500, 502, 503, 504}
_CERTIFICATE = "CERTIFICATE_VERIFY_FAILED"
_API_NOT_ENABLED = "has not been used in project"
_MAX_QUOTED = 600  # characters of Google's own message
_PERMISSION = re.compile(r"'?\b([a-z]+\.[A-Za-z]+\.[A-Za-z]+)\b'?")
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


def from_response(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    service: str,
    host: str = "",
    project: str | None = None,
    member: str | None = None,
) -> GoogleError:
    """Return the error for a response whose status is not a success.

    The call was made for a project by a member in IAM's notation, such as ``user:…``.
    """
    host = host or f"{service}.googleapis.com"
    call = _Call(service, host, project, member or CURRENT_ACCOUNT)
    return _ErrorResponse(call, status, headers, body).error()


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


def invalid_response(host: str, problem: str) -> GoogleError:
    """Return the error for a successful response that is not what the API documents."""
    return GoogleError(f"{host}: invalid response: {problem}", status=200, reason=INVALID)


def unreadable_response(host: str, problem: str) -> RetryableError:
    """Return the error for a response that is not the API's, such as a proxy's page."""
    return RetryableError(f"{host}: invalid response: {problem}", status=200, reason=INVALID)


def root_cause(error: BaseException) -> str:
    """Return the message of the system, or else of the library, for a failure."""
    causes = list(_causes(error))
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
        for cause in _causes(error)
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that it wraps, outermost first."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        reason = getattr(cause, "reason", None)  # of urllib3's exceptions
        wrapped = [part for part in (reason, *cause.args) if isinstance(part, BaseException)]
        cause = wrapped[0] if wrapped else cause.__cause__ or cause.__context__


class _Call(NamedTuple):
    service: str
    host: str
    project: str | None
    member: str


class _ErrorResponse:
    """An error response of one of Google's APIs, or of a proxy before it."""

    def __init__(self, call: _Call, status: int, headers: Mapping[str, str], body: bytes) -> None:
        error = _error_object(body)
        self._status = status
        self._message = _one_line(error.get("message")) or _plain_text(status, body)
        self._reason = _one_line(error.get("status")) or _status_phrase(status)
        self._details = _objects(error.get("details"))
        self._info = self._detail("ErrorInfo")
        self._service, self._host, self._project, self._member = call
        self._wait = _retry_after(headers.get("Retry-After")) or self._retry_delay()

    def error(self) -> GoogleError:
        is_rate = self._status == HTTPStatus.TOO_MANY_REQUESTS and self._is_rate_limit()
        if self._status == HTTPStatus.TOO_MANY_REQUESTS:
            return RetryableError(
                self._status_line() if is_rate else self._quota(),
                status=self._status,
                reason=RATE if is_rate else QUOTA,
                wait=self._wait,
                may_have_been_processed=False,
            )
        if self._status in _RETRYABLE:
            return RetryableError(
                self._status_line(), status=self._status, reason=self._reason, wait=self._wait
            )
        return GoogleError(
            self._text(),
            status=self._status,
            reason=self._reason,
            error_reason=self._error_reason(),
            service=self._api(),
        )

    def _status_line(self) -> str:
        return f"{self._host} answers {self._status} ({self._message})"

    def _text(self) -> str:
        if self._status == HTTPStatus.UNAUTHORIZED:
            return f"Google does not accept the credentials ({self._message}); run '{LOGIN}'"
        if self._status == HTTPStatus.FORBIDDEN:
            return self._forbidden()
        if self._status == HTTPStatus.NOT_FOUND:
            return f"not found: {self._message}"
        violations = self._violations()
        if violations:
            return f"Google refuses the request: {_one_line('; '.join(violations))}"
        return f"Google refuses ({self._reason}): {self._message}"

    def _forbidden(self) -> str:
        error_reason = self._error_reason()
        if error_reason == DISABLED:
            return self._disabled()
        if error_reason == NOT_PAID:
            return (
                f"project {self._consumer()} has no billing account; run 'gcloud billing projects "
                f"link {self._consumer()} --billing-account=ACCOUNT'"
            )
        if error_reason == NOT_CHARGED:
            return (
                f"calls cannot be charged to project {self._consumer()} ({self._message}); "
                "run 'gcloud auth application-default set-quota-project PROJECT' with one of "
                f"yours, or {self._grant('roles/serviceusage.serviceUsageConsumer')}"
            )
        return self._denied()

    def _error_reason(self) -> str:
        is_disabled = self._status == HTTPStatus.FORBIDDEN and _API_NOT_ENABLED in self._message
        return _one_line(self._info.get("reason")) or (DISABLED if is_disabled else "")

    def _api(self) -> str:
        return self._metadata().get("service") or f"{self._service}.googleapis.com"

    def _disabled(self) -> str:
        service, project = self._api(), self._consumer()
        links = _objects(self._detail("Help").get("links"))
        url = (
            self._metadata().get("activationUrl")
            or next(filter(None, (_one_line(link.get("url")) for link in links)), "")
            or f"https://console.cloud.google.com/apis/library/{service}?project={project}"
        )
        return (
            f"{service} is not enabled in project {project}; run 'gcloud services enable "
            f"{service} --project={project}' and wait a minute, or see {url}"
        )

    def _denied(self) -> str:
        permission = self._metadata().get("permission")
        if not permission:
            match = _PERMISSION.search(self._message)
            permission = match[1] if match else None
        requested = permission or self._service
        role = next((_ROLES[prefix] for prefix in _ROLES if requested.startswith(prefix)), None)
        if permission is None:
            remedy = f"; {self._grant(role)}" if role else ""
            return f"Google refuses ({self._reason}): {self._message}{remedy}"
        remedy = self._grant(role) if role else "request a role with it from the project's owner"
        project = f"project {self._project or self._consumer()}"
        resource = self._metadata().get("resource") or project
        return f"the permission {permission} is missing on {resource}; {remedy}"

    def _grant(self, role: str) -> str:
        if role in _BUCKET_ROLES:
            target = "storage buckets add-iam-policy-binding gs://BUCKET"
        else:
            target = f"projects add-iam-policy-binding {self._project or self._consumer()}"
        command = f"gcloud {target} --member={self._member} --role={role}"
        return f"have an administrator run '{command}'"

    def _quota(self) -> str:
        project = self._project or self._consumer()
        violations = _objects(self._detail("QuotaFailure").get("violations"))
        descriptions = (_one_line(violation.get("description")) for violation in violations)
        reasons = _one_line("; ".join(filter(None, descriptions)))
        return (
            f"the quota is exceeded: {reasons or self._message}; "
            "choose another machine or region, or request more at "
            f"https://console.cloud.google.com/iam-admin/quotas?project={project}"
        )

    def _is_rate_limit(self) -> bool:
        """Whether there were only too many calls in a short time."""
        if self._info.get("reason") == RATE or self._wait:
            return True
        return self._reason != QUOTA or _RATE_MESSAGE.search(self._message) is not None

    def _violations(self) -> list[str]:
        violations = _objects(self._detail("BadRequest").get("fieldViolations"))
        return [
            ": ".join(filter(None, map(_one_line, (part.get("field"), part.get("description")))))
            for part in violations
        ]

    def _consumer(self) -> str:
        consumer = self._metadata().get("consumer", "").removeprefix("projects/")
        return consumer or self._project or "PROJECT"

    def _metadata(self) -> dict[str, str]:
        metadata = self._info.get("metadata")
        items = metadata.items() if isinstance(metadata, dict) else ()
        return {name: _one_line(value) for name, value in items}

    def _retry_delay(self) -> float:
        return _retry_after(str(self._detail("RetryInfo").get("retryDelay", "")).removesuffix("s"))

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


def _retry_after(text: str | None) -> float:
    """Return the seconds of a Retry-After header, which may be a date."""
    try:
        seconds = float(text or 0)
        return max(seconds, 0.0) if math.isfinite(seconds) else 0.0
    except ValueError:
        date = parsedate_tz(text or "")
        return max(mktime_tz(date) - time.time(), 0.0) if date else 0.0


def _objects(value: object) -> list[dict[str, Any]]:
    items = value if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]
