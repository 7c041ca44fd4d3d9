"""What Google's refusals become; the bodies are as its services word them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from distlaunch.errors import GoogleError, RetryableError
from distlaunch.google.api_errors import from_response

RPC = "type.googleapis.com/google.rpc."


def info(reason: str, **metadata: str) -> dict:
    return {"@type": f"{RPC}ErrorInfo", "reason": reason, "metadata": metadata}


def body(status: int, reason: str, message: str, *details: dict) -> bytes:
    error = {"code": status, "message": message, "status": reason, "details": details}
    return json.dumps({"error": error}).encode()


def problem(
    status: int, content: bytes, headers: dict | None = None, service: str = "aiplatform", **kwargs
) -> GoogleError:
    return from_response(status, headers or {}, content, service=service, project="p", **kwargs)


MEMBER = "--member=user:$(gcloud config get account)"
GRANT = f"have an administrator run 'gcloud projects add-iam-policy-binding p {MEMBER} --role"


@pytest.mark.parametrize(
    ("service", "content", "expected"),
    [
        (
            "aiplatform",
            body(
                403,
                "PERMISSION_DENIED",
                "Permission 'aiplatform.customJobs.create' denied on resource '//…' (or it may "
                "not exist).",
                info(
                    "IAM_PERMISSION_DENIED",
                    permission="aiplatform.customJobs.create",
                    resource="projects/p/locations/us-central1",
                ),
            ),
            "the permission aiplatform.customJobs.create is missing on "
            f"projects/p/locations/us-central1; {GRANT}=roles/aiplatform.user'",
        ),
        (
            "logging",
            body(403, "PERMISSION_DENIED", "Permission 'logging.logEntries.list' denied"),
            "the permission logging.logEntries.list is missing on project p; "
            f"{GRANT}=roles/logging.viewer'",
        ),
        (
            "logging",
            body(403, "PERMISSION_DENIED", "The caller does not have permission"),
            "Google refuses (PERMISSION_DENIED): The caller does not have permission; "
            f"{GRANT}=roles/logging.viewer'",
        ),
        (
            "aiplatform",
            body(403, "PERMISSION_DENIED", "Permission 'tpu.nodes.create' denied"),
            "the permission tpu.nodes.create is missing on project p; "
            "request a role with it from the project's owner",
        ),
        (
            "aiplatform",
            body(
                403,
                "PERMISSION_DENIED",
                "Agent Platform API has not been used in project 7 before or it is disabled.",
                info(
                    "SERVICE_DISABLED",
                    service="aiplatform.googleapis.com",
                    consumer="projects/7",
                    activationUrl="https://console.example/enable",
                ),
            ),
            "aiplatform.googleapis.com is not enabled in project 7; run 'gcloud services enable "
            "aiplatform.googleapis.com --project=7' and wait a minute, or see "
            "https://console.example/enable",
        ),
        (
            "logging",
            body(
                403,
                "PERMISSION_DENIED",
                "Cloud Logging API has not been used in project 7 before",
                {"@type": f"{RPC}Help", "links": [{"url": "https://console.example/help"}]},
            ),
            "logging.googleapis.com is not enabled in project p; run 'gcloud services enable "
            "logging.googleapis.com --project=p' and wait a minute, or see "
            "https://console.example/help",
        ),
        (
            "aiplatform",
            body(403, "PERMISSION_DENIED", "…", info("BILLING_DISABLED", consumer="projects/7")),
            "project 7 has no billing account; run 'gcloud billing projects link 7 "
            "--billing-account=ACCOUNT'",
        ),
        (
            "aiplatform",
            body(
                403, "PERMISSION_DENIED", "No.", info("USER_PROJECT_DENIED", consumer="projects/q")
            ),
            "calls cannot be charged to project q (No); run 'gcloud auth application-default "
            f"set-quota-project PROJECT' with one of yours, or {GRANT}="
            "roles/serviceusage.serviceUsageConsumer'",
        ),
    ],
)
def test_forbidden_names_what_is_missing_and_the_command_that_fixes_it(service, content, expected):
    found = problem(403, content, service=service)
    assert str(found) == expected
    assert (found.status, type(found)) == (403, GoogleError)


@pytest.mark.parametrize(
    ("permission", "role"),
    [
        ("artifactregistry.repositories.get", "artifactregistry.reader"),
        ("artifactregistry.repositories.getIamPolicy", "iam.securityReviewer"),
        ("artifactregistry.repositories.uploadArtifacts", "artifactregistry.writer"),
        ("iam.serviceAccounts.get", "iam.serviceAccountUser"),
        ("resourcemanager.projects.get", "browser"),
        ("resourcemanager.projects.getIamPolicy", "browser"),
        ("serviceusage.quotas.get", "serviceusage.serviceUsageViewer"),
        ("storage.objects.create", "storage.objectAdmin"),
    ],
)
def test_each_permission_has_a_role(permission, role):
    content = body(403, "PERMISSION_DENIED", f"Permission '{permission}' denied")
    assert str(problem(403, content)).endswith(f"; {GRANT}=roles/{role}'")


@pytest.mark.parametrize(
    ("service", "role"),
    [
        ("artifactregistry", "artifactregistry.reader"),
        ("cloudresourcemanager", "browser"),
        ("iam", "iam.serviceAccountUser"),
        ("serviceusage", "serviceusage.serviceUsageViewer"),
    ],
)
def test_each_service_has_a_role_where_no_permission_is_named(service, role):
    content = body(403, "PERMISSION_DENIED", "The caller does not have permission")
    assert str(problem(403, content, service=service)).endswith(f"; {GRANT}=roles/{role}'")


def test_to_look_at_a_bucket_is_granted_on_the_bucket():
    content = body(403, "", "Permission 'storage.buckets.get' denied on resource")
    assert str(problem(403, content, service="storage")).endswith(
        f"'gcloud storage buckets add-iam-policy-binding gs://BUCKET {MEMBER} "
        "--role=roles/storage.legacyBucketReader'"
    )


@pytest.mark.parametrize(
    ("content", "why", "api"),
    [
        (
            body(403, "", "…", info("SERVICE_DISABLED", service="x.googleapis.com")),
            "SERVICE_DISABLED",
            "x.googleapis.com",
        ),
        (
            body(403, "", "Storage has not been used in project 7 before"),
            "SERVICE_DISABLED",
            "storage.googleapis.com",
        ),
        (body(403, "", "No."), "", "storage.googleapis.com"),
        (body(400, "", "It has not been used in project 7"), "", "storage.googleapis.com"),
    ],
)
def test_what_a_refusal_is_about_is_told_to_programs_too(content, why, api):
    status = json.loads(content)["error"]["code"]
    found = problem(status, content, service="storage")
    assert (found.error_reason, found.service) == (why, api)


def test_a_service_account_is_named_in_the_command():
    content = body(403, "PERMISSION_DENIED", "Permission 'aiplatform.customJobs.get' denied")
    found = problem(403, content, member="serviceAccount:bot@p.iam.gserviceaccount.com")
    assert "--member=serviceAccount:bot@p.iam.gserviceaccount.com --role" in str(found)


@pytest.mark.parametrize(
    ("status", "content", "expected"),
    [
        (
            400,
            body(
                400,
                "INVALID_ARGUMENT",
                "List of found errors: …",
                {
                    "@type": f"{RPC}BadRequest",
                    "fieldViolations": [
                        {"field": "job_spec.timeout", "description": "Too\nlong."},
                        {"field": "display_name", "description": "Empty"},
                    ],
                },
            ),
            "Google refuses the request: job_spec.timeout: Too long; display_name: Empty",
        ),
        (
            400,
            body(400, "FAILED_PRECONDITION", "The job has ended."),
            "Google refuses (FAILED_PRECONDITION): The job has ended",
        ),
        (
            401,
            body(401, "UNAUTHENTICATED", "Invalid credentials"),
            "Google does not accept the credentials (Invalid credentials); "
            "run 'gcloud auth application-default login'",
        ),
        (
            404,
            body(404, "NOT_FOUND", "The CustomJob does not exist."),
            "not found: The CustomJob does not exist",
        ),
        (409, b"[]", "Google refuses (CONFLICT): []"),
        (
            418,
            b"<html><b>Some proxy</b>\nrefuses</html>",
            "Google refuses (I'M_A_TEAPOT): Some proxy refuses",
        ),
        (302, b"", "Google refuses (FOUND): HTTP status 302"),
        (499, b'[{"error": {"message": "wrapped"}}]', "Google refuses (499): wrapped"),
    ],
)
def test_other_refusals(status, content, expected):
    found = problem(status, content)
    assert str(found) == expected
    assert not isinstance(found, RetryableError)


QUOTA = "The following quota metrics exceed quota limits: aiplatform.googleapis.com/x_gpus"


@pytest.mark.parametrize(
    ("content", "headers", "reason"),
    [
        (body(429, "RESOURCE_EXHAUSTED", QUOTA), {}, "RESOURCE_EXHAUSTED"),
        (
            body(
                429,
                "RESOURCE_EXHAUSTED",
                "…",
                {"@type": f"{RPC}QuotaFailure", "violations": [{"description": QUOTA}]},
            ),
            {},
            "RESOURCE_EXHAUSTED",
        ),
        (
            body(429, "RESOURCE_EXHAUSTED", "Quota exceeded for 'Reads per minute'"),
            {},
            "RATE_LIMIT_EXCEEDED",
        ),
        (
            body(429, "RESOURCE_EXHAUSTED", "…", info("RATE_LIMIT_EXCEEDED")),
            {},
            "RATE_LIMIT_EXCEEDED",
        ),
        (body(429, "RESOURCE_EXHAUSTED", "…"), {"Retry-After": "7"}, "RATE_LIMIT_EXCEEDED"),
        (b"slow down", {}, "RATE_LIMIT_EXCEEDED"),
    ],
)
def test_too_many_calls_are_no_quota_of_machines(content, headers, reason):
    found = problem(429, content, headers)
    assert isinstance(found, RetryableError)
    assert (found.reason, found.may_have_been_processed) == (reason, False)
    if content == b"slow down":
        assert str(found) == "aiplatform.googleapis.com answers 429 (slow down)"
    if reason == "RESOURCE_EXHAUSTED":
        assert str(found) == (
            f"the quota is exceeded: {QUOTA}; choose another machine or region, or request "
            "more at https://console.cloud.google.com/iam-admin/quotas?project=p"
        )


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
def test_what_may_do_better_later(status):
    found = problem(status, body(status, "UNAVAILABLE", "Try again."))
    assert isinstance(found, RetryableError)
    assert (str(found), found.may_have_been_processed) == (
        f"aiplatform.googleapis.com answers {status} (Try again)",
        True,
    )


@pytest.mark.parametrize(
    ("headers", "details", "wait"),
    [
        ({"Retry-After": "7"}, [], 7.0),
        ({"Retry-After": "-7"}, [], 0.0),
        ({"Retry-After": "soon"}, [], 0.0),
        ({"Retry-After": "inf"}, [], 0.0),
        ({"Retry-After": "nan"}, [], 0.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, [], 0.0),
        ({}, [{"@type": f"{RPC}RetryInfo", "retryDelay": "3.5s"}], 3.5),
    ],
)
def test_how_long_google_asks_to_wait(headers, details, wait):
    found = problem(503, body(503, "UNAVAILABLE", "…", *details), headers)
    assert isinstance(found, RetryableError)
    assert found.wait == wait


JSON = some.recursive(
    some.none() | some.booleans() | some.floats() | some.text(),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
)
KINDS = ("ErrorInfo", "BadRequest", "QuotaFailure", "Help", "RetryInfo", "Other")
ERRORS = some.fixed_dictionaries(
    {},
    optional={
        "code": JSON,
        "message": JSON,
        "status": JSON,
        "details": JSON
        | some.lists(
            some.fixed_dictionaries(
                {"@type": some.sampled_from([f"{RPC}{kind}" for kind in KINDS])},
                optional=dict.fromkeys(
                    ("metadata", "reason", "fieldViolations", "violations", "links", "retryDelay"),
                    JSON,
                ),
            )
        ),
    },
)


@given(
    some.sampled_from([400, 401, 403, 404, 429, 503]) | some.integers(300, 599),
    some.binary() | ERRORS.map(lambda e: json.dumps({"error": e}).encode()),
)
def test_whatever_is_answered_is_told_in_one_line(status, content):
    text = str(problem(status, content))
    assert text
    assert "\n" not in text
    assert len(text) < 3_000
