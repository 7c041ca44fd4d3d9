"""Jobs, a fake Google with defects, and servers with chosen responses."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from distlaunch.checks import cloud
from distlaunch.checks.request_view import job_request
from distlaunch.google.client import connect
from distlaunch.job import machine_catalogue
from distlaunch.job.model import Cluster, Image, Job, Machine, Pool
from distlaunch.submit.plan import LaunchRequest

from ...google.servers import Reply, Server, refused  # noqa: TID252 - tests are no package

if TYPE_CHECKING:
    from collections.abc import Callable

AGENT = "serviceAccount:service-123@gcp-sa-aiplatform.iam.gserviceaccount.com"
OBJECTS = [f"storage.objects.{verb}" for verb in ("create", "delete", "get", "list")]
# Responses of a good project by parts of the paths; it has all requested permissions.
GOOD = {
    "/iam/testPermissions": {"permissions": OBJECTS},
    "/b/demo-bucket": {"location": "US-CENTRAL1", "locationType": "region"},
    "/billingInfo": {"billingEnabled": True},
    "demo-project:getIamPolicy": {
        "bindings": [{"role": "roles/aiplatform.serviceAgent", "members": [AGENT]}]
    },
    "/consumerQuotaMetrics/": {
        "consumerQuotaLimits": [{"quotaBuckets": [{"effectiveLimit": "-1"}]}]
    },
    "/v3/projects/": {"name": "projects/123", "state": "ACTIVE"},
}
T4 = Pool(Machine("n1-standard-8", "NVIDIA_TESLA_T4", 1))


@pytest.fixture(scope="session")
def known():
    return machine_catalogue.load(None)


@pytest.fixture
def job():
    """Return a function that makes a job with some fields."""

    def make(**fields) -> Job:
        defaults = {
            "name": "digits",
            "project": "demo-project",
            "region": "us-central1",
            "bucket": "gs://demo-bucket",
            "image": Image("us-central1-docker.pkg.dev/demo-project/training/digits"),
            "service_account": "trainer@demo-project.iam.gserviceaccount.com",
            "cluster": Cluster(T4, Pool(T4.machine, 3)),
        }
        return Job(**(defaults | fields))

    return make


@pytest.fixture
def look(tmp_path, known):
    """Return a function that checks a job with the server at a URL."""

    def run(job: Job, url: str, **kwargs) -> list:
        session = connect(url, project=job.project, **kwargs)
        order = LaunchRequest(tmp_path, job, endpoint=url)
        return cloud.problems(order, job_request(order), session, known)

    return run


@pytest.fixture
def check_with(tmp_path, known, google):
    """Return a function that checks a job with the fake Google."""

    def run(job: Job, **knobs) -> list:
        google(**knobs)
        order = LaunchRequest(tmp_path, job)
        return cloud.problems(order, job_request(order), connect(project=job.project), known)

    return run


@pytest.fixture
def serve_google():
    """Serve responses by the ends of their paths, and those of a good project."""
    with contextlib.ExitStack() as servers:

        def make(answers: dict[str, object] | None = None) -> Server:
            server = Server(_answering(answers or {}))
            servers.callback(server.close)
            return server

        yield make


def _answering(answers: dict[str, object]) -> Callable[[object], Reply]:
    def answer(request) -> Reply:
        for end, body in answers.items():
            if request.path.endswith(end):
                return body if isinstance(body, Reply) else Reply(body=body)
        return _good_response(request)

    return answer


def _good_response(request) -> Reply:
    if request.path.endswith(":testIamPermissions"):
        return Reply(body=request.body)
    body = next((body for part, body in GOOD.items() if part in request.path), {})
    return Reply(body=body)


@pytest.fixture
def denied():
    """Return a function that makes Google's response to a caller without a permission."""
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo"}

    def make(permission: str = "", why: str = "IAM_PERMISSION_DENIED") -> Reply:
        text = f"Permission '{permission}' denied on resource (or it may not exist)."
        metadata = {"permission": permission} if permission else {"service": "x.googleapis.com"}
        details = {**info, "reason": why, "metadata": metadata}
        return refused(403, "PERMISSION_DENIED", text, details)

    return make


@pytest.fixture
def missing():
    return refused(404, "NOT_FOUND", "Not found.")
