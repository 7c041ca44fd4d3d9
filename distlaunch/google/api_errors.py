"""An answer of Google's that is no success → what went wrong and what to do about it, in one line.

What stands in an answer is told in https://cloud.google.com/apis/design/errors and, for `details`,
in google/rpc/error_details.proto.
"""

from __future__ import annotations

import json
import math
import re
import time
from email.utils import mktime_tz, parsedate_tz
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from distlaunch.errors import GoogleError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

LOGIN = "gcloud auth application-default login"
WHOEVER = "user:$(gcloud config get account)"
"""Who asks, as a shell finds it out, where the credentials do not tell."""
DISABLED, NOT_PAID, NOT_CHARGED = "SERVICE_DISABLED", "BILLING_DISABLED", "USER_PROJECT_DENIED"
RATE = "RATE_LIMIT_EXCEEDED"
QUOTA = "RESOURCE_EXHAUSTED"

_COME_BACK = {408, 500, 502, 503, 504}
_TOO_MUCH = 429
_UNUSED = "has not been used in project"  # an API that is not enabled
_LONGEST = 600  # characters of Google's own words
_PERMISSION = re.compile(r"'?\b([a-z]+\.[A-Za-z]+\.[A-Za-z]+)\b'?")
_RATE = re.compile(
    r"per (second|minute|hour|day)|rate limit|resource has been exhausted", re.IGNORECASE
)
# A role that holds a permission, by the permission's beginning; the first that fits.
_ROLES = {
    "aiplatform.": "roles/aiplatform.user",
    "logging.": "roles/logging.viewer",
    "storage.objects.get": "roles/storage.objectViewer",
    "storage.objects.list": "roles/storage.objectViewer",
    "storage.buckets.get": "roles/storage.legacyBucketReader",
    "storage.": "roles/storage.objectAdmin",
    "serviceusage.services.use": "roles/serviceusage.serviceUsageConsumer",
    "serviceusage.": "roles/serviceusage.serviceUsageViewer",
    "iam.serviceAccounts.": "roles/iam.serviceAccountUser",
    "artifactregistry.repositories.getIamPolicy": "roles/iam.securityReviewer",
    "artifactregistry.repositories.get": "roles/artifactregistry.reader",
    "artifactregistry.": "roles/artifactregistry.writer",
    "compute.": "roles/compute.networkUser",
    "resourcemanager.projects.": "roles/browser",
}
_OF_BUCKETS = ("roles/storage.legacyBucketReader",)  # that a project has no place for
_SERVICE_ROLES = {
    "aiplatform": "roles/aiplatform.user",
    "logging": "roles/logging.viewer",
    "storage": "roles/storage.objectAdmin",
    "artifactregistry": "roles/artifactregistry.reader",
    "cloudresourcemanager": "roles/browser",
    "iam": "roles/iam.serviceAccountUser",
    "serviceusage": "roles/serviceusage.serviceUsageViewer",
}


class Refusal:
    """Understands one answer.

    Parameters
    ----------
    status
        The HTTP status.
    headers, body
        What else was answered.
    service, project
        What was asked, and who was to pay for it.
    host
        Who answered; the service's own host by default.
    member
        Who asked, as IAM writes it (``serviceAccount:…``), where that is known.
    """

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
        *,
        service: str,
        host: str = "",
        project: str | None = None,
        member: str | None = None,
    ) -> None:
        error = _error(body)
        self.status = status
        self.message = _one_line(error.get("message")) or _told_otherwise(status, body)
        self.reason = _one_line(error.get("status")) or _reason(status)
        self._details = _dicts(error.get("details"))
        self._info = self._detail("ErrorInfo")
        self._service = service
        self._host = host or f"{service}.googleapis.com"
        self._project = project
        self._member = member or WHOEVER
        self._wait = _seconds(headers.get("Retry-After")) or self._retry_delay()

    def problem(self) -> GoogleError:
        """Return what to raise."""
        if self.status == _TOO_MUCH:
            reason = RATE if self._is_rate() else QUOTA
            text = self._answered() if reason == RATE else self._quota()
            return Unavailable(
                text, status=self.status, reason=reason, wait=self._wait, heard=False
            )
        if self.status in _COME_BACK:
            return Unavailable(
                self._answered(), status=self.status, reason=self.reason, wait=self._wait
            )
        return GoogleError(
            self._text(),
            status=self.status,
            reason=self.reason,
            why=self._why(),
            service=self._api(),
        )

    def _answered(self) -> str:
        return f"{self._host} answers {self.status} ({self.message})"

    def _text(self) -> str:
        if self.status == HTTPStatus.UNAUTHORIZED:
            return f"Google does not accept the credentials ({self.message}); run '{LOGIN}'"
        if self.status == HTTPStatus.FORBIDDEN:
            return self._forbidden()
        if self.status == HTTPStatus.NOT_FOUND:
            return f"Google does not know what was asked for ({self.message})"
        violations = self._violations()
        if violations:
            return f"Google refuses the request: {_one_line('; '.join(violations))}"
        return f"Google refuses ({self.reason}): {self.message}"

    def _forbidden(self) -> str:
        why = self._why()
        if why == DISABLED:
            return self._disabled()
        if why == NOT_PAID:
            return (
                f"project {self._consumer()} has no billing account; run 'gcloud billing projects "
                f"link {self._consumer()} --billing-account=ACCOUNT'"
            )
        if why == NOT_CHARGED:
            return (
                f"the calls may not be charged to project {self._consumer()} ({self.message}); "
                "run 'gcloud auth application-default set-quota-project PROJECT' with one of "
                f"yours, or {self._grant('roles/serviceusage.serviceUsageConsumer')}"
            )
        return self._denied()

    def _why(self) -> str:
        said = _one_line(self._info.get("reason"))
        is_disabled = self.status == HTTPStatus.FORBIDDEN and _UNUSED in self.message
        return said or (DISABLED if is_disabled else "")

    def _api(self) -> str:
        return self._metadata().get("service") or f"{self._service}.googleapis.com"

    def _disabled(self) -> str:
        service, project = self._api(), self._consumer()
        link = (
            self._metadata().get("activationUrl")
            or self._help()
            or (f"https://console.cloud.google.com/apis/library/{service}?project={project}")
        )
        return (
            f"{service} is not enabled in project {project}; run 'gcloud services enable "
            f"{service} --project={project}' and wait a minute, or see {link}"
        )

    def _help(self) -> str:
        links = _dicts(self._detail("Help").get("links"))
        return next(filter(None, (_one_line(each.get("url")) for each in links)), "")

    def _denied(self) -> str:
        permission = self._metadata().get("permission")
        if not permission:
            found = _PERMISSION.search(self.message)
            permission = found[1] if found else None
        if permission is None:
            role = _SERVICE_ROLES.get(self._service)
            remedy = f"; {self._grant(role)}" if role else ""
            return f"Google refuses ({self.reason}): {self.message}{remedy}"
        role = next((r for start, r in _ROLES.items() if permission.startswith(start)), None)
        remedy = self._grant(role) if role else "ask who owns the project for a role with it"
        where = self._metadata().get("resource") or f"project {self._project or self._consumer()}"
        return f"the permission {permission} is missing on {where}; {remedy}"

    def _grant(self, role: str) -> str:
        if role in _OF_BUCKETS:
            to = "storage buckets add-iam-policy-binding gs://BUCKET"
        else:
            to = f"projects add-iam-policy-binding {self._project or self._consumer()}"
        return f"who may grant it runs 'gcloud {to} --member={self._member} --role={role}'"

    def _quota(self) -> str:
        project = self._project or self._consumer()
        violations = _dicts(self._detail("QuotaFailure").get("violations"))
        told = "; ".join(filter(None, (_one_line(each.get("description")) for each in violations)))
        return (
            f"the quota does not allow it: {_one_line(told) or self.message}; "
            "choose another machine or region, or ask for more at "
            f"https://console.cloud.google.com/iam-admin/quotas?project={project}"
        )

    def _is_rate(self) -> bool:
        """Whether there were only too many calls in a short time."""
        if self._info.get("reason") == RATE or self._wait:
            return True
        return self.reason != QUOTA or _RATE.search(self.message) is not None

    def _violations(self) -> list[str]:
        listed = _dicts(self._detail("BadRequest").get("fieldViolations"))
        return [
            ": ".join(filter(None, map(_one_line, (each.get("field"), each.get("description")))))
            for each in listed
        ]

    def _consumer(self) -> str:
        consumer = self._metadata().get("consumer", "").removeprefix("projects/")
        return consumer or self._project or "PROJECT"

    def _metadata(self) -> dict[str, str]:
        metadata = self._info.get("metadata")
        found = metadata if isinstance(metadata, dict) else {}
        return {name: _one_line(value) for name, value in found.items()}

    def _retry_delay(self) -> float:
        return _seconds(str(self._detail("RetryInfo").get("retryDelay", "")).removesuffix("s"))

    def _detail(self, kind: str) -> dict[str, Any]:
        """Return the details of a kind of google.rpc's."""
        ending = f"google.rpc.{kind}"
        return next((d for d in self._details if str(d.get("@type", "")).endswith(ending)), {})


def _error(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if isinstance(answer, list) and answer:  # some of Google's servers wrap their errors
        answer = answer[0]
    error = answer.get("error") if isinstance(answer, dict) else None
    return error if isinstance(error, dict) else {}


def _told_otherwise(status: int, body: bytes) -> str:
    """Return a text for an answer that is none of Google's: a proxy's, say."""
    text = _one_line(re.sub(r"<[^>]*>", " ", body[:4096].decode("utf-8", "replace")))
    return text[:200] or f"HTTP status {status}"


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase.upper().replace(" ", "_")
    except ValueError:
        return str(status)


def _one_line(text: object) -> str:
    line = " ".join(text.split()) if isinstance(text, str) else ""
    return (line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…").removesuffix(".")


def _seconds(text: str | None) -> float:
    """Return what a Retry-After header says: seconds, or a date."""
    try:
        found = float(text or 0)
        return max(found, 0.0) if math.isfinite(found) else 0.0
    except ValueError:
        date = parsedate_tz(text or "")
        return max(mktime_tz(date) - time.time(), 0.0) if date else 0.0


def _dicts(value: object) -> list[dict[str, Any]]:
    listed = value if isinstance(value, list) else []
    return [each for each in listed if isinstance(each, dict)]
