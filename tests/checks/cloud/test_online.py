"""All cloud checks: a good project, one with defects, and calls that fail."""

from __future__ import annotations

import threading
import time
from urllib.parse import urlsplit

import pytest
from google.auth.transport.requests import AuthorizedSession
from google.oauth2.credentials import Credentials
from requests.adapters import HTTPAdapter

from distlaunch.checks import cloud
from distlaunch.checks.request_view import job_request
from distlaunch.google.client import Session
from distlaunch.job.model import Cluster, Image, Machine, Pool, RangeParameter, Scheduling, Tuning
from distlaunch.submit.plan import LaunchRequest

from ...google.servers import RESET, Clock, Reply, Server, refused  # noqa: TID252 - tests are no package

A100 = Cluster(Pool(Machine("a2-highgpu-1g", "NVIDIA_TESLA_A100", 1)))
CPUS = Cluster(Pool(Machine("c2-standard-8")), Pool(Machine("c2-standard-8"), 2))
TUNING = Tuning(
    "accuracy", "maximize", {"rate": RangeParameter(0.1, 1.0)}, trials=4, parallel_trials=2
)
REPOSITORY = "us-central1-docker.pkg.dev/demo-project/training"

# Defects of the fake Google, and the expected problems: code, location, and a part of the remedy.
DEFECTS = [
    (
        {
            "without": ["logging.googleapis.com", "billing", "bucket", "repository", "account"],
            "limits": {"nvidia_t4_gpus": 2},
        },
        [
            (
                "api-disabled",
                "logging.googleapis.com",
                "gcloud services enable logging.googleapis.com --project=demo-project",
            ),
            (
                "billing-off",
                "project demo-project",
                "gcloud billing projects link demo-project --billing-account=",
            ),
            (
                "bucket-missing",
                "gs://demo-bucket",
                "gcloud storage buckets create gs://demo-bucket --project=demo-project "
                "--location=us-central1",
            ),
            (
                "repository-missing",
                REPOSITORY,
                "gcloud artifacts repositories create training --repository-format=docker "
                "--project=demo-project --location=us-central1",
            ),
            (
                "account-missing",
                "trainer@demo-project.iam.gserviceaccount.com",
                "gcloud iam service-accounts create trainer --project=demo-project",
            ),
            (
                "quota-too-low",
                "quota custom_model_training_nvidia_t4_gpus",
                "https://console.cloud.google.com/iam-admin/quotas?project=demo-project",
            ),
        ],
    ),
    (
        {
            "without": [
                "storage.objects.create",
                "iam.serviceAccounts.actAs",
                "agent",
                "aiplatform.customJobs.create",
                "logging.logEntries.list",
                "artifactregistry.repositories.uploadArtifacts",
            ],
            "repository_format": "PYTHON",
            "bucket": {"location": "EU", "locationType": "multi-region"},
        },
        [
            (
                "permission-missing",
                "project demo-project",
                "gcloud projects add-iam-policy-binding demo-project "
                "--member=user:$(gcloud config get account) --role=roles/aiplatform.user",
            ),
            ("permission-missing", "project demo-project", "--role=roles/logging.viewer"),
            ("bucket-not-regional", "gs://demo-bucket", "--location=us-central1"),
            (
                "bucket-denied",
                "gs://demo-bucket",
                "gcloud storage buckets add-iam-policy-binding gs://demo-bucket",
            ),
            ("repository-format", REPOSITORY, "--repository-format=docker"),
            ("repository-denied", REPOSITORY, "--role=roles/artifactregistry.writer"),
            (
                "account-denied",
                "trainer@demo-project.iam.gserviceaccount.com",
                "--role=roles/iam.serviceAccountUser",
            ),
            ("agent-cannot-pull", REPOSITORY, "--role=roles/artifactregistry.reader"),
        ],
    ),
    (
        {"without": ["project"]},
        [("project-missing", "project demo-project", "gcloud projects list")],
    ),
    (
        {
            "without": ["aiplatform.googleapis.com"],
            "bucket": {"location": "EUROPE-WEST1", "locationType": "region"},
        },
        [
            (
                "api-disabled",
                "aiplatform.googleapis.com",
                "gcloud services enable aiplatform.googleapis.com",
            ),
            ("bucket-elsewhere", "gs://demo-bucket", "--region europe-west1"),
        ],
    ),
]


@pytest.fixture
def clock():
    return Clock()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"cluster": CPUS, "service_account": None},
        {"scheduling": Scheduling("SPOT")},
        {"cluster": A100, "scheduling": Scheduling("FLEX_START")},
        {"tuning": TUNING},
        {"cluster": Cluster(Pool(Machine("cloud-tpu", "TPU_V3", 8)))},
        {"image": Image("us-docker.pkg.dev/demo-project/training/digits"), "bucket": None},
        {"image": Image("localhost:5000/digits")},
        {"project": None},
        {"region": None},
        {"cluster": Cluster(Pool(Machine("n9-standard-8")))},
    ],
)
def test_a_good_project_has_no_problems(fields, job, check_with, caplog):
    assert check_with(job(**fields)) == []
    assert caplog.records == []


@pytest.mark.parametrize(("knobs", "expected"), DEFECTS)
def test_a_defect_is_a_problem_with_its_remedy(knobs, expected, job, check_with):
    found = check_with(job(), **knobs)
    assert [(problem.code, problem.where) for problem in found] == [row[:2] for row in expected]
    for problem, (_, _, remedy) in zip(found, expected, strict=True):
        assert remedy in problem.remedy


@pytest.mark.parametrize(
    "knobs",
    [
        {
            "failures": {
                "serviceusage": 503,
                "billing": 403,
                "cloudresourcemanager": 403,
                "iam": 503,
                "artifactregistry": 403,
                "storage": "reset",
            }
        },
        {
            "failures": {
                "services": 403,
                "service": 403,
                "quotas": "disabled",
                "billing": "reset",
                "cloudresourcemanager": "disabled",
                "iam": "reset",
                "artifactregistry": 503,
                "storage": 403,
            }
        },
    ],
)
def test_a_failed_call_is_a_warning(knobs, job, check_with):
    found = check_with(job(), **knobs)
    assert {problem.severity for problem in found} == {"warning"}
    assert all(problem.remedy for problem in found)
    locations = " ".join(problem.where for problem in found if problem.code == "unanswered")
    for location in (
        "project demo-project",
        "the APIs of project demo-project",
        "the billing of project demo-project",
        "gs://demo-bucket",
        REPOSITORY,
        "trainer@demo-project.iam.gserviceaccount.com",
        "quota custom_model_training_cpus",
        "quota custom_model_training_nvidia_t4_gpus",
    ):
        assert location in locations


def test_limits_are_checked_without_the_list_of_jobs(job, look, serve_google, denied):
    limits = {
        f"_{name}": {"consumerQuotaLimits": [{"quotaBuckets": [{"effectiveLimit": limit}]}]}
        for name, limit in {"cpus": "10", "gpus": "4"}.items()
    }
    low, unknown = look(job(), serve_google({"/customJobs": denied(), **limits}).url)
    assert (low.code, low.where) == ("quota-too-low", "quota custom_model_training_cpus")
    assert low.what == "the job needs 32, the limit in us-central1 is 10"
    assert (unknown.code, unknown.where) == (
        "unanswered",
        "quotas that jobs in us-central1 use",
    )


def test_a_transient_failure_is_retried_once(job, look, serve_google, clock):
    server = serve_google()
    answer, seen = server.answer, set()

    def fail_at_first(request) -> Reply:
        is_new = (request.path, str(request.body)) not in seen
        seen.add((request.path, str(request.body)))
        return refused(503, "UNAVAILABLE") if is_new else answer(request)

    server.answer = fail_at_first
    assert look(job(service_account=None), server.url, sleep=clock.sleep) == []
    assert max(clock.slept) == 0.5


def test_a_long_retry_after_is_not_waited_for(job, look, serve_google, clock):
    busy = Reply(503, {}, headers={"Retry-After": "60"})
    [problem] = look(job(), serve_google({"/billingInfo": busy}).url, sleep=clock.sleep)
    assert (problem.code, problem.where) == ("unanswered", "the billing of project demo-project")
    assert clock.slept == []


def test_refused_credentials_are_reported_once(job, look, serve_google):
    expired = refused(401, "UNAUTHENTICATED", "Expired.")
    [problem] = look(job(), serve_google({"": expired}).url)
    assert (problem.code, problem.severity) == ("no-credentials", "warning")
    assert "gcloud auth application-default login" in problem.remedy


def test_an_emulator_that_is_down_is_reported_once(job, look, serve_google):
    server = serve_google()
    server.close()
    [problem] = look(job(), server.url)
    assert problem.code == "unanswered"
    assert problem.where.startswith("project demo-project, the APIs of project demo-project, ")
    assert "start 'distlaunch emulator' there" in problem.remedy


def test_a_server_that_does_not_respond_is_given_up(job, look):
    """The clock reaches the deadline as soon as all calls have been sent."""
    is_over = threading.Event()
    times = iter([0.0])

    def answer(_) -> Reply:
        is_over.wait(60)
        return Reply()

    server = Server(answer)
    try:
        [problem] = look(job(), server.url, clock=lambda: next(times, 11.0))
        assert problem.what == "not checked: no response within 11 s"
    finally:
        is_over.set()
        server.close()


CREDENTIALS = {
    "refresh_token": "r",
    "client_id": "c",
    "client_secret": "s",
    "account": "me@example.com",
}


class RedirectTo(HTTPAdapter):
    """Sends requests for Google to a server of the test."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.server = server
        self.hosts: set[str] = set()

    def send(self, request, *args, **kwargs):
        url = urlsplit(request.url)
        self.hosts.add(url.netloc)
        request.url = f"{self.server.url}{url.path}?{url.query}"
        return super().send(request, *args, **kwargs)


@pytest.fixture
def real(tmp_path, known, serve_google):
    """Check a job with a session for Google itself, and a token server of the test."""

    def run(job, answers=None, token_answer=None) -> tuple[list, RedirectTo]:
        server = serve_google(
            {"/token": token_answer or {"access_token": "t", "expires_in": 3600}, **(answers or {})}
        )
        adapter = RedirectTo(server)
        session = AuthorizedSession(
            Credentials(None, token_uri=f"{server.url}/token", **CREDENTIALS)
        )
        session.trust_env = False
        session.mount("https://", adapter)
        calls = Session(
            session,
            endpoint=None,
            project=job.project,
            clock=time.monotonic,
            sleep=lambda _: None,
            show_message=None,
        )
        order = LaunchRequest(tmp_path, job)
        return cloud.problems(order, job_request(order), calls, known), adapter

    return run


def test_calls_go_to_the_hosts_of_google_with_one_token(job, real):
    found, adapter = real(job())
    assert found == []
    services = (
        "artifactregistry",
        "cloudbilling",
        "cloudresourcemanager",
        "iam",
        "serviceusage",
        "storage",
        "us-central1-aiplatform",
    )
    assert adapter.hosts == {f"{service}.googleapis.com" for service in services}
    paths = [request.path for request in adapter.server.requests]
    assert paths.count("/token") == 1
    assert any(path.startswith("/v1beta1/projects/demo-project/services/") for path in paths)


def test_commands_name_the_caller(job, real):
    [problem], _ = real(job(), {"/iam/testPermissions": {}})
    assert problem.code == "bucket-denied"
    assert "user:me@example.com does not have storage.objects.create" in problem.what
    assert "--member=user:me@example.com" in problem.remedy


@pytest.mark.parametrize(
    ("token_answer", "code"),
    [
        (Reply(400, {"error": "invalid_grant"}), "no-credentials"),
        (RESET, "unanswered"),
    ],
)
def test_without_a_token_there_are_no_calls(token_answer, code, job, real):
    [problem], adapter = real(job(), token_answer=token_answer)
    assert (problem.code, problem.where) == (code, "google cloud")
    assert adapter.hosts == set()


def test_a_region_cannot_redirect_a_token(job, real):
    quota = {"consumerQuotaLimits": [{"quotaBuckets": [{"effectiveLimit": "99"}]}]}
    found, adapter = real(job(region="evil.com/", bucket=None), {"_cpus": quota})
    assert {problem.code for problem in found} == {"unanswered", "repository-far"}
    assert all(host.endswith(".googleapis.com") for host in adapter.hosts)
