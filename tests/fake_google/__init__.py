"""Google's APIs as the checks before a submit call them, in memory and without a network.

`FakeGoogle.install` answers every request to ``*.googleapis.com`` of this process.
"""

from __future__ import annotations

import io
import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import requests
from requests.adapters import HTTPAdapter

from . import prices

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    import pytest

NUMBER = "123456789012"
CREDENTIALS = {
    "type": "authorized_user",
    "refresh_token": "r",
    "client_id": "c",
    "client_secret": "s",
    "token_uri": "https://oauth2.googleapis.com/token",
}
AGENT = f"serviceAccount:service-{NUMBER}@gcp-sa-aiplatform.iam.gserviceaccount.com"

# Kind of call (a key of `FakeGoogle.failures`), method, and path below the host.
ROUTES = (
    ("services", "GET", r"serviceusage/v1/projects/(?P<project>[^/]+)/services:batchGet"),
    ("service", "GET", r"serviceusage/v1/projects/(?P<project>[^/]+)/services/[^/]+"),
    ("quotas", "GET", r"serviceusage/v1beta1/.*/consumerQuotaMetrics/(?P<metric>.+)"),
    ("billing", "GET", r"cloudbilling/v1/projects/[^/]+/billingInfo"),
    ("prices", "GET", r"cloudbilling/v1/services/(?P<seller>[^/]+)/skus"),
    ("permissions", "POST", r"cloudresourcemanager/v3/projects/[^/]+:testIamPermissions"),
    ("policy", "POST", r"cloudresourcemanager/v3/projects/[^/]+:getIamPolicy"),
    ("project", "GET", r"cloudresourcemanager/v3/projects/[^/]+"),
    ("permissions", "POST", r"(iam|artifactregistry)/v1/.*:testIamPermissions"),
    ("policy", "GET", r"artifactregistry/v1/.*/repositories/[^/]+:getIamPolicy"),
    ("account", "GET", r"iam/v1/projects/-/serviceAccounts/[^/]+"),
    ("repository", "GET", r"artifactregistry/v1/.*/repositories/[^/]+"),
    ("permissions", "GET", r"storage/storage/v1/b/[^/]+/iam/testPermissions"),
    ("bucket", "GET", r"storage/storage/v1/b/[^/]+"),
    ("jobs", "GET", r"aiplatform/v1/.*/(?P<collection>customJobs|hyperparameterTuningJobs)"),
    ("create", "POST", r"aiplatform/v1/(?P<parent>.*)/(?P<collection>customJobs)"),
    ("token", "POST", r"oauth2/token"),
)
_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
_QUOTA_PREFIX = "custom_model_training_"


class Refused(Exception):
    """An error as Google's APIs answer it."""

    def __init__(self, code: int, message: str, reason: str = "", **metadata: str) -> None:
        super().__init__(message)
        info = {"@type": _ERROR_INFO, "reason": reason, "metadata": metadata}
        status = {403: "PERMISSION_DENIED", 404: "NOT_FOUND"}.get(code, "UNAVAILABLE")
        error = {"code": code, "message": message, "status": status}
        self.code = code
        self.body = {"error": error | ({"details": [info]} if reason else {})}


@dataclass
class FakeGoogle:
    """A project in which all is as a job needs it, but for what a test takes away.

    Parameters
    ----------
    without
        Of project, billing, bucket, repository, account and agent; hosts of APIs; permissions.
    limits
        Quota limits by what follows ``custom_model_training_``.
    failures
        By a kind of call or the first word of a host: an HTTP status, ``disabled`` (403, the API
        is off), or ``reset``.
    jobs
        The jobs that the project has, by their collection.
    """

    without: Collection[str] = ()
    bucket: Mapping[str, str] = field(
        default_factory=lambda: {"location": "US-CENTRAL1", "locationType": "region"}
    )
    repository_format: str = "DOCKER"
    limits: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, int | str] = field(default_factory=dict)
    jobs: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))

    def install(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        """Answer the requests of this process, which gets credentials in a file of the folder."""
        file = folder / "credentials.json"
        file.write_text(json.dumps(CREDENTIALS))
        patch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        patch.setattr(HTTPAdapter, "send", partial_method(self._send, HTTPAdapter.send))

    def _send(
        self,
        send: Callable[..., requests.Response],
        adapter: HTTPAdapter,
        request: requests.PreparedRequest,
        **options: Any,
    ) -> requests.Response:
        url = urlsplit(request.url or "")
        service, _, domain = (url.hostname or "").partition(".")
        if domain != "googleapis.com":
            return send(adapter, request, **options)
        service = "aiplatform" if service.endswith("-aiplatform") else service
        response = requests.Response()
        response.request, response.url = request, request.url or ""
        try:
            body = request.body if isinstance(request.body, bytes) else b"{}"
            params = parse_qs(url.query)
            answer = self._answer(request.method or "", f"{service}{url.path}", params, body)
            response.status_code = 200
        except Refused as refused:
            response.status_code, answer = refused.code, refused.body
        response.raw = io.BytesIO(json.dumps(answer).encode())
        return response

    def _answer(
        self, method: str, path: str, params: Mapping[str, list[str]], body: bytes
    ) -> dict[str, Any]:
        for kind, verb, pattern in ROUTES:
            match = re.fullmatch(pattern, path)
            if match is None or verb != method:
                continue
            service = path.partition("/")[0]
            self._fail(kind, service)
            if kind == "permissions":
                wanted = params.get("permissions") or json.loads(body).get("permissions", [])
                return {"permissions": [name for name in wanted if name not in self.without]}
            if kind == "services":
                return {"services": [self._service(name) for name in params["names"]]}
            if kind == "create":
                return self._create(json.loads(body), **match.groupdict())
            return getattr(self, f"_{kind}")(**match.groupdict())
        raise Refused(404, f"Method not found: {method} {path}")

    def _fail(self, kind: str, service: str) -> None:
        failure = self.failures.get(kind, self.failures.get(service))
        if failure == "reset":
            raise requests.ConnectionError("Connection reset by peer")
        if failure == "disabled" or f"{service}.googleapis.com" in self.without:
            api = f"{service}.googleapis.com"
            raise Refused(403, f"{api} is disabled.", "SERVICE_DISABLED", service=api)
        if "project" in self.without and service not in ("oauth2", "storage"):
            raise Refused(403, "Permission denied on resource project demo-project.")
        if isinstance(failure, int):
            raise Refused(failure, "The call failed.")
        if kind in ("account", "bucket", "repository") and kind in self.without:
            raise Refused(404, "Requested entity was not found.")

    def _service(self, name: str = "") -> dict[str, Any]:
        is_on = name.rpartition("/")[2] not in self.without
        return {"name": name, "state": "ENABLED" if is_on else "DISABLED"}

    def _quotas(self, metric: str) -> dict[str, Any]:
        name = unquote(metric).partition(_QUOTA_PREFIX)[2]
        limit = str(self.limits.get(name, 1_000))
        return {"consumerQuotaLimits": [{"quotaBuckets": [{"effectiveLimit": limit}]}]}

    def _billing(self) -> dict[str, Any]:
        return {"billingEnabled": "billing" not in self.without}

    def _prices(self, seller: str) -> dict[str, Any]:
        return {"skus": prices.SKUS.get(seller, [])}

    def _project(self) -> dict[str, Any]:
        return {"name": f"projects/{NUMBER}", "state": "ACTIVE"}

    def _policy(self) -> dict[str, Any]:
        role = {"role": "roles/aiplatform.serviceAgent", "members": [AGENT]}
        return {"bindings": [] if "agent" in self.without else [role]}

    def _account(self) -> dict[str, Any]:
        return {"email": "trainer@demo-project.iam.gserviceaccount.com"}

    def _repository(self) -> dict[str, Any]:
        return {"format": self.repository_format, "mode": "STANDARD_REPOSITORY"}

    def _bucket(self) -> dict[str, Any]:
        return dict(self.bucket)

    def _jobs(self, collection: str) -> dict[str, Any]:
        return {collection: self.jobs[collection]}

    def _create(self, job: dict[str, Any], parent: str, collection: str) -> dict[str, Any]:
        name = f"{parent}/{collection}/{len(self.jobs[collection]) + 1}"
        created = {**job, "name": name, "state": "JOB_STATE_QUEUED"}
        self.jobs[collection].append(created)
        return created

    def _token(self) -> dict[str, Any]:
        return {"access_token": "t", "expires_in": 3600}


def partial_method(
    function: Callable[..., requests.Response], send: Callable[..., requests.Response]
) -> Callable[..., requests.Response]:
    """Return a method for an adapter that hands the original `send` to a function."""

    def method(adapter: HTTPAdapter, request: Any, **options: Any) -> requests.Response:
        return function(send, adapter, request, **options)

    return method
