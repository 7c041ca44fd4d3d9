"""All cloud checks together: a good project, one with defects, and calls that fail."""

from __future__ import annotations

import threading
from itertools import chain, count

import fake_google
import pytest
import requests
from fake_google import Refused

from distlaunch.job.model import Cluster, Image, Machine, Pool, RangeParameter, Scheduling, Tuning

A100 = Cluster(Pool(Machine("a2-highgpu-1g", "NVIDIA_TESLA_A100", 1)))
TUNING = Tuning(
    "accuracy", "maximize", {"rate": RangeParameter(0.1, 1.0)}, trials=4, parallel_trials=2
)
PROJECT, REPOSITORY = "project demo-project", "us-central1-docker.pkg.dev/demo-project/training"
SERVICES = [
    "artifactregistry",
    "cloudbilling",
    "cloudresourcemanager",
    "iam",
    "serviceusage",
    "storage",
]
ACCOUNT = "trainer@demo-project.iam.gserviceaccount.com"


@pytest.mark.parametrize(
    "fields",
    [
        {},
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
def test_a_good_project_has_no_problems(fields, check, caplog):
    assert check(fields) == []
    assert caplog.records == []


def test_all_defects_are_reported_at_once(check):
    without = [
        "logging.logEntries.list",
        "billing",
        "bucket",
        "artifactregistry.repositories.uploadArtifacts",
        "iam.serviceAccounts.actAs",
        "agent",
    ]
    problems = check(without=without, limits={"nvidia_t4_gpus": 2})
    assert [(problem.code, problem.where, problem.severity) for problem in problems] == [
        ("permission-missing", PROJECT, "warning"),
        ("billing-off", PROJECT, "error"),
        ("bucket-missing", "gs://demo-bucket", "error"),
        ("repository-denied", REPOSITORY, "error"),
        ("account-denied", ACCOUNT, "error"),
        ("agent-cannot-pull", REPOSITORY, "warning"),
        ("quota-too-low", "quota custom_model_training_nvidia_t4_gpus", "error"),
    ]


@pytest.mark.parametrize("failure", [503, "reset", "disabled"])
def test_a_failed_call_is_a_warning(failure, check):
    failures = dict.fromkeys(SERVICES, failure)
    problems = check(failures=failures, options={"sleep": lambda _: None})
    assert {problem.severity for problem in problems} == {"warning"}
    assert all(problem.remedy for problem in problems)
    assert set(", ".join(problem.where for problem in problems).split(", ")) >= {
        PROJECT,
        f"the APIs of {PROJECT}",
        f"the billing of {PROJECT}",
        "gs://demo-bucket",
        REPOSITORY,
        ACCOUNT,
        "quota custom_model_training_cpus",
        "quota custom_model_training_nvidia_t4_gpus",
    }


def test_a_transient_failure_is_retried(check):
    outcomes = iter([Refused(503), requests.ConnectionError()])
    billing = {"/billingInfo": lambda: next(outcomes, {"billingEnabled": True})}
    assert check(answers=billing, options={"sleep": lambda _: None}) == []
    assert next(outcomes, None) is None


def test_a_server_that_does_not_respond_is_given_up(check):
    is_over, others = threading.Event(), set(threading.enumerate())
    times = chain([0.0, 0.0], count(11.0))
    answers = {"/token": {"access_token": "t"}, "": lambda: is_over.wait(60)}
    try:
        options = {"clock": lambda: next(times), "sleep": is_over.wait}
        [problem] = check(answers=answers, options=options)
    finally:
        is_over.set()
        # The calls of abandoned threads, and of those that they start, would reach the next test.
        while abandoned := set(threading.enumerate()) - others:
            for thread in abandoned:
                if thread.is_alive():  # one that is being started cannot be joined yet
                    thread.join()
    assert problem.what == "not checked: no response within 11 s"


def test_calls_go_to_the_hosts_of_google_with_one_token(check, google, monkeypatch):
    monkeypatch.setitem(fake_google.CREDENTIALS, "account", "me@example.com")
    received = []
    [problem] = check(answers={"/iam/testPermissions": {}}, requests=received)
    services = {*SERVICES, "oauth2", "us-central1-aiplatform"}
    assert {request.host for request in received} == {f"{name}.googleapis.com" for name in services}
    assert [request.path for request in received].count("/token") == 1
    assert problem.code == "bucket-denied"
    assert "user:me@example.com does not have storage.objects.create" in problem.what
    assert "--member=user:me@example.com" in problem.remedy


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        ({"/token": Refused(400)}, "no-credentials"),
        ({"/token": requests.ConnectionError()}, "unanswered"),
        ({"/token": {"access_token": "t"}, "": Refused(401)}, "no-credentials"),
    ],
)
def test_without_credentials_there_is_one_warning(answers, code, check):
    received = []
    [problem] = check(answers=answers, requests=received)
    assert (problem.code, problem.severity) == (code, "warning")
    assert problem.where == "google cloud"
    if "" not in answers:
        assert {request.path for request in received} == {"/token"}


def test_a_region_cannot_redirect_a_token(check):
    received = []
    fields = {"region": "evil.com/", "bucket": None}
    problems = check(fields, limits={"cpus": 99}, requests=received)
    assert {problem.code for problem in problems} == {"unanswered", "repository-far"}
    assert all(request.host.endswith(".googleapis.com") for request in received)
