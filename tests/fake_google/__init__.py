"""Google's APIs as the checks before a submit call them, in memory and without a network."""

from __future__ import annotations

import io
import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse

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
    ("services", "GET", r"serviceusage/v1/projects/[^/]+/services:batchGet"),
    ("service", "GET", r"serviceusage/v1/projects/[^/]+/services/[^/]+"),
    ("quotas", "GET", r"serviceusage/v1beta1/.*/consumerQuotaMetrics/(?P<metric>.+)"),
    ("billing", "GET", r"cloudbilling/v1/projects/[^/]+/billingInfo"),
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
    ("tensorboard", "GET", r"aiplatform/v1/projects/[^/]+/locations/us-central1/tensorboards/\d+"),
    ("experiment", "GET", r"aiplatform/v1/.*/locations/us-central1/metadataStores/.*/contexts/.*"),
    ("create", "POST", r"aiplatform/v1/(?P<parent>.*)/(?P<collection>customJobs)"),
    ("token", "POST", r"oauth2/token"),
)
_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
_QUOTA_PREFIX = "custom_model_training_"


class Refused(Exception):
    """An error as Google's APIs answer it."""

    def __init__(self, code: int, message: str = "No.", reason: str = "", **metadata: str) -> None:
        super().__init__(message)
        info = {"@type": _ERROR_INFO, "reason": reason, "metadata": metadata}
        names = {400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}
        status = {**names, 409: "ABORTED", 412: "FAILED_PRECONDITION"}.get(code, "UNAVAILABLE")
        error = {"code": code, "message": message, "status": status}
        self.code = code
        self.body = {"error": error | ({"details": [info]} if reason else {})}


class Request(NamedTuple):
    """A request; each parameter has its values."""

    host: str
    path: str
    params: Mapping[str, list[str]]
    body: bytes


@dataclass
class FakeGoogle:
    """A project in which all is as a job needs it, but for what a test takes away."""

    # Of project, billing, bucket, repository, account, tensorboard and agent; hosts of APIs;
    # permissions.
    without: Collection[str] = ()
    bucket: Mapping[str, str] = field(
        default_factory=lambda: {"location": "US-CENTRAL1", "locationType": "region"}
    )
    repository_format: str = "DOCKER"
    # Quota limits by what follows ``custom_model_training_``.
    limits: Mapping[str, int] = field(default_factory=dict)
    # By a kind of call or the first word of a host: an HTTP status, ``disabled`` or ``reset``.
    failures: Mapping[str, int | str] = field(default_factory=dict)
    # By the end of a path: a response, an exception, or a function that returns one.
    answers: Mapping[str, Any] = field(default_factory=dict)
    # Further services: each returns its answer, bytes or JSON, or None for what is not its own.
    services: list[Callable[[str, Request], Any]] = field(default_factory=list)
    jobs: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    requests: list[Request] = field(default_factory=list)
    routes: ClassVar[tuple[tuple[str, str, str], ...]] = ROUTES

    def install(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        """Answer this process's requests to ``*.googleapis.com``, with credentials in a folder."""
        file = folder / "credentials.json"
        file.write_text(json.dumps(CREDENTIALS))
        patch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        send = HTTPAdapter.send
        patch.setattr(HTTPAdapter, "send", lambda *each, **more: self._send(send, *each, **more))

    def _send(
        self,
        send: Callable[..., requests.Response],
        adapter: HTTPAdapter,
        request: requests.PreparedRequest,
        **options: Any,
    ) -> requests.Response:
        url = urlsplit(request.url or "")
        body = request.body if isinstance(request.body, bytes) else b"{}"
        received = Request(url.hostname or "", url.path, parse_qs(url.query), body)
        self.requests.append(received)
        if not received.host.endswith(".googleapis.com"):
            return send(adapter, request, **options)
        response = requests.Response()
        response.request, response.url = request, request.url or ""
        try:
            answer = self._answer(request.method or "", received)
            response.status_code = 200
        except Refused as refused:
            response.status_code, answer = refused.code, refused.body
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        response.raw = HTTPResponse(io.BytesIO(content), preload_content=False)
        return response

    def _answer(self, method: str, request: Request) -> Any:
        for end, answer in self.answers.items():
            if request.path.endswith(end):
                return _given(answer)
        for respond in self.services:
            if (answer := respond(method, request)) is not None:
                return answer
        service = re.sub(r"^[a-z0-9-]+-(?=aiplatform\.)", "", request.host).partition(".")[0]
        for kind, verb, pattern in self.routes:
            match = re.fullmatch(pattern, f"{service}{request.path}")
            if match and verb == method:
                self._fail(kind, service)
                return self._response(kind, request, match.groupdict())
        raise Refused(404, f"Method not found: {method} {request.path}")

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
        if (
            kind in ("account", "bucket", "repository", "tensorboard", "experiment")
            and kind in self.without
        ):
            raise Refused(404, "Requested entity was not found.")

    def _response(self, kind: str, request: Request, parts: Mapping[str, str]) -> Any:
        members = () if "agent" in self.without else (AGENT,)
        fixed = {
            "billing": {"billingEnabled": "billing" not in self.without},
            "project": {"name": f"projects/{NUMBER}", "state": "ACTIVE"},
            "policy": policy("roles/aiplatform.serviceAgent", *members),
            "account": {"email": "trainer@demo-project.iam.gserviceaccount.com"},
            "repository": {"format": self.repository_format, "mode": "STANDARD_REPOSITORY"},
            "bucket": dict(self.bucket),
            "tensorboard": {"name": request.path.removeprefix("/v1/")},
            "experiment": {"name": request.path.removeprefix("/v1/")},
            "token": {"access_token": "t", "expires_in": 3600},
        }
        return fixed.get(kind) or getattr(self, f"_{kind}")(request, **parts)

    def _permissions(self, request: Request) -> dict[str, Any]:
        wanted = request.params.get("permissions") or json.loads(request.body)["permissions"]
        return {"permissions": [name for name in wanted if name not in self.without]}

    def _services(self, request: Request) -> dict[str, Any]:
        return {"services": [self._service(request, name) for name in request.params["names"]]}

    def _service(self, _: Request, name: str = "") -> dict[str, Any]:
        is_on = name.rpartition("/")[2] not in self.without
        return {"name": name, "state": "ENABLED" if is_on else "DISABLED"}

    def _quotas(self, _: Request, metric: str) -> dict[str, Any]:
        name = unquote(metric).partition(_QUOTA_PREFIX)[2]
        return quota(str(self.limits.get(name, 1_000)))

    def _jobs(self, _: Request, collection: str) -> dict[str, Any]:
        return {collection: self.jobs[collection]}

    def _create(self, request: Request, parent: str, collection: str) -> dict[str, Any]:
        jobs = self.jobs[collection]
        name = f"{parent}/{collection}/{len(jobs) + 1}"
        jobs.append({**json.loads(request.body), "name": name, "state": "JOB_STATE_QUEUED"})
        return jobs[-1]


def quota(limit: str) -> dict[str, Any]:
    """Return a quota metric with a limit for all regions."""
    return {"consumerQuotaLimits": [{"quotaBuckets": [{"effectiveLimit": limit}]}]}


def policy(role: str, *members: str) -> dict[str, Any]:
    """Return a policy with one role."""
    return {"bindings": [{"role": role, "members": list(members)}]}


def _given(answer: Any) -> Any:
    result = answer() if callable(answer) else answer
    if isinstance(result, Exception):
        raise result
    return result
