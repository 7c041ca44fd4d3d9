"""Failed calls to Google → errors that name the cause and the remedy in one line.

https://cloud.google.com/apis/design/errors documents error responses, and
google/rpc/error_details.proto their `details`.
"""

from __future__ import annotations

import http.client
import json
import math
import re
import socket
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from distlaunch.engines.vertex.auth import login_remedy
from distlaunch.errors import Diagnostic, GoogleError, RetryableError, causes_of
from distlaunch.refusals import (
    CURRENT_ACCOUNT,
    find_remedy,
    grant,
    more_calls,
    more_quota,
    permission_in,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from requests import Response

RATE, QUOTA = "RATE_LIMIT_EXCEEDED", "RESOURCE_EXHAUSTED"

# 429 is apart: it is refused before it is processed, so a retry creates nothing twice.
_RETRYABLE = {408, 500, 502, 503, 504}
# Also in a message of Docker. Google's own pages have <title>Error 404 (Not Found)!!1</title>.
_PROXY_PAGE = re.compile(
    rb"(?is)(\s*|error parsing HTTP \d+ .*)<(!doctype html|html|head|body)\b(?!.*!!1</title>)"
)
_CERTIFICATE = "CERTIFICATE_VERIFY_FAILED"
_MAX_QUOTED = 600  # characters of Google's own message
_RATE_MESSAGE = re.compile(
    r"(?i)per (second|minute|hour|day)|rate limit|resource has been exhausted"
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
    "cloudbuild": "roles/cloudbuild.builds.editor",
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
# Names of reasons of a 403 that a role fixes.
ROLE_CODES = ("", "IAM_PERMISSION_DENIED", "forbidden", "insufficientPermissions")
_BUCKET = re.compile(r"/b/([^/?]+)")  # in a URL of Cloud Storage's API


def connection_error(host: str, error: Exception, *, is_local: bool) -> GoogleError:
    """Return the error for a call without a response."""
    from requests.exceptions import ConnectTimeout

    cause = root_cause(error)
    if _CERTIFICATE in str(error):
        return GoogleError(
            f"the certificate of {host} is not trusted ({cause})",
            remedy="set REQUESTS_CA_BUNDLE to the file with your network's certificates",
        )
    was_sent = not isinstance(error, ConnectTimeout) and not _is_refused(error)
    return RetryableError(
        f"cannot reach {host} ({cause})",
        remedy="start 'distlaunch emulator' there" if is_local and not was_sent else "",
        reason="UNREACHABLE",
        may_have_been_processed=was_sent,
    )


def unreadable_response(host: str, problem: str, body: bytes = b"") -> RetryableError:
    """Return the error for a response that is not the API's, such as a proxy's page."""
    page = proxy_error(f"{host} answers 200", body)
    page = page or Diagnostic(f"{host}: invalid response: {problem}")
    return RetryableError(page.what, remedy=page.remedy, status=200)


def proxy_error(response: str, body: bytes) -> Diagnostic | None:
    """Return what is wrong with a body that is a proxy's page, None for any other."""
    if not _PROXY_PAGE.match(body):
        return None
    page = f"a page that is not Google's ({_plain_text(body)})"
    return Diagnostic(
        f"{response} with {page}: a proxy or firewall is in between",
        "contact your network's administrators, or set HTTPS_PROXY and NO_PROXY",
    )


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
        self, response: Response, service: str, project: str | None, member: str | None
    ) -> None:
        status, body = response.status_code, response.content
        error = error_object(body)
        self._status = status
        self._service = service
        self._is_google = bool(error)
        self._member = member or CURRENT_ACCOUNT
        self._details = _objects(error.get("details"))
        info = self._detail("ErrorInfo")
        metadata = info.get("metadata")
        items = metadata.items() if isinstance(metadata, dict) else ()
        self._facts = {name: fact for name, value in items if (fact := _one_line(value))}
        if consumer := self._facts.get("consumer"):
            self._facts["project"] = consumer.removeprefix("projects/")
        self._project = project or self._facts.get("project", "PROJECT")
        self._message = self._full_message(error) or _plain_text(body) or f"HTTP status {status}"
        self._bucket = match[1] if (match := _BUCKET.search(response.url)) else "BUCKET"
        phrase = http.client.responses.get(status, str(status))
        self._reason = _one_line(error.get("status")) or phrase.upper().replace(" ", "_")
        legacy = next((item.get("reason") for item in _objects(error.get("errors"))), "")
        self._code = _one_line(info.get("reason")) or _one_line(legacy)
        self._refusal = f"Google refuses ({self._reason}): {self._message}"
        answer = f"{host_of(response.url)} answers {status}"
        self._proxy_error = proxy_error(answer, body)
        is_rate = self._is_google and status == HTTPStatus.TOO_MANY_REQUESTS
        remedy = more_calls(self._project) if is_rate else ""
        self._answer = Diagnostic(f"{answer} ({self._message})", remedy)
        delay = str(self._detail("RetryInfo").get("retryDelay", "")).removesuffix("s")
        self._wait = _seconds(response.headers.get("Retry-After")) or _seconds(delay)

    def error(self) -> GoogleError:
        """Return the error for the user and for retries."""
        status, reason = self._status, self._reason
        is_busy = status == HTTPStatus.TOO_MANY_REQUESTS
        if is_busy:
            reason = RATE if self._is_rate_limit() else QUOTA
        if is_busy or status in _RETRYABLE:
            busy = self._over_quota() if reason == QUOTA else self._answer
            return RetryableError(
                busy.what,
                remedy=busy.remedy,
                status=status,
                reason=reason,
                wait=self._wait,
                may_have_been_processed=not is_busy,
            )
        if page := self._proxy_error:
            return GoogleError(page.what, remedy=page.remedy)
        # A bucket's project is not known, and may be another than that of the call.
        project = "" if self._service == "storage" else self._project
        values = {"service": f"{self._service}.googleapis.com", "project": project}
        values |= {"member": self._member, **self._facts}
        remedy = find_remedy(self._message, self._code, values)
        refused = Diagnostic(self._refusal, remedy.text) if remedy else self._refused()
        return GoogleError(
            refused.what,
            remedy=refused.remedy,
            status=status,
            reason=reason,
            error_reason=(remedy and remedy.code) or self._code,
            service=values["service"],
        )

    def _full_message(self, error: Mapping[str, Any]) -> str:
        """Return Google's message, with what only its details have."""
        message = _one_line(error.get("message"))
        violations = _objects(self._detail("PreconditionFailure").get("violations"))
        texts = [_one_line(each.get(key)) for each in violations for key in ("type", "description")]
        texts.append(self._facts.get("uid", ""))  # of VPC Service Controls
        unique = dict.fromkeys(text for text in texts if text and text not in message)
        return _one_line(", ".join(filter(None, (message, *unique))))

    def _is_rate_limit(self) -> bool:
        """Whether there were only too many calls in a short time."""
        if self._code == RATE or self._wait or self._reason != QUOTA:
            return True
        return _RATE_MESSAGE.search(self._message) is not None

    def _refused(self) -> Diagnostic:
        if self._status == HTTPStatus.UNAUTHORIZED:
            what = f"Google does not accept the credentials ({self._message})"
            return Diagnostic(what, login_remedy())
        if self._status == HTTPStatus.FORBIDDEN:
            return self._denied()
        if self._status == HTTPStatus.NOT_FOUND:
            return Diagnostic(f"not found: {self._message}")
        violations = "; ".join(
            ": ".join(filter(None, map(_one_line, (part.get("field"), part.get("description")))))
            for part in _objects(self._detail("BadRequest").get("fieldViolations"))
        )
        text = f"Google refuses the request: {_one_line(violations)}"
        return Diagnostic(text if violations else self._refusal)

    def _over_quota(self) -> Diagnostic:
        violations = _objects(self._detail("QuotaFailure").get("violations"))
        descriptions = (_one_line(violation.get("description")) for violation in violations)
        reasons = _one_line("; ".join(filter(None, descriptions)))
        return Diagnostic(
            f"the quota is exceeded: {reasons or self._message}",
            f"choose another machine or region, or {more_quota(self._project)}",
        )

    def _denied(self) -> Diagnostic:
        permission = self._facts.get("permission") or permission_in(self._message)
        required = permission or self._service
        role = next((_ROLES[prefix] for prefix in _ROLES if required.startswith(prefix)), None)
        if not permission:
            is_role = self._is_google and self._code in ROLE_CODES
            return Diagnostic(self._refusal, self._grant(role) if role and is_role else "")
        remedy = self._grant(role) if role else "request a role with it from the project's owner"
        is_storage = permission.startswith("storage.")
        place = f"gs://{self._bucket}" if is_storage else f"project {self._project}"
        resource = self._facts.get("resource") or place
        return Diagnostic(f"the permission {permission} is missing on {resource}", remedy)

    def _grant(self, role: str) -> str:
        """Return how to grant a role: on the bucket, or on the project."""
        if role.startswith("roles/storage."):
            command = f"storage buckets add-iam-policy-binding gs://{self._bucket}"
        else:
            command = f"projects add-iam-policy-binding {self._project}"
        return grant(command, self._member, role)

    def _detail(self, kind: str) -> dict[str, Any]:
        """Return the detail of a type of google.rpc, empty if there is none."""
        suffix = f"google.rpc.{kind}"
        matches = (item for item in self._details if str(item.get("@type", "")).endswith(suffix))
        return next(matches, {})


def error_object(body: bytes) -> dict[str, Any]:
    """Return what an error response of one of Google's APIs has, empty for any other."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if isinstance(content, list) and content:  # some of Google's servers wrap their errors
        content = content[0]
    error = content.get("error") if isinstance(content, dict) else None
    return error if isinstance(error, dict) else {}


def _plain_text(body: bytes) -> str:
    """Return the text of a response that is not Google's, such as a proxy's page."""
    markup = r"(?is)<!--.*?-->|<(style|script)\b.*?</\1\s*>|<[^>]*>"
    return _one_line(re.sub(markup, " ", body[:16384].decode("utf-8", "replace")))[:200]


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
