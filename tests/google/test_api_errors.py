"""The messages of Google's errors; the bodies are in the words of its services."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from distlaunch.errors import GoogleError, RetryableError
from distlaunch.google.api_errors import ErrorResponse

RPC = "type.googleapis.com/google.rpc."


def detail(kind: str, **fields: object) -> dict:
    return {"@type": f"{RPC}{kind}", **fields}


def info(reason: str, **metadata: str) -> dict:
    return detail("ErrorInfo", reason=reason, metadata=metadata)


def body(status: int, reason: str, message: str, *details: dict) -> bytes:
    error = {"code": status, "message": message, "status": reason, "details": details}
    return json.dumps({"error": error}).encode()


def denied(message: str, *details: dict) -> bytes:
    return body(403, "PERMISSION_DENIED", message, *details)


def error_of(
    status: int,
    content: bytes,
    headers: dict | None = None,
    service: str = "aiplatform",
    member: str | None = None,
) -> GoogleError:
    host = f"{service}.googleapis.com"
    call = {"service": service, "host": host, "project": "p", "member": member}
    return ErrorResponse(status, headers or {}, content, **call).error()


MEMBER = "--member=user:$(gcloud config get account)"
GRANT = f"have an administrator run 'gcloud projects add-iam-policy-binding p {MEMBER} --role"
CREATE = "aiplatform.customJobs.create"
REGION = "projects/p/locations/us-central1"
PERMISSION = info("IAM_PERMISSION_DENIED", permission=CREATE, resource=REGION)
UNUSED = "Cloud Logging API has not been used in project 7 before"
ENABLE = "is not enabled in project {0}; run 'gcloud services enable {1} --project={0}' and wait"
DISABLED = info(
    "SERVICE_DISABLED",
    service="x.googleapis.com",
    consumer="projects/7",
    activationUrl="https://console.example/enable",
)


@pytest.mark.parametrize(
    ("service", "content", "message"),
    [
        (
            "aiplatform",
            denied(f"Permission '{CREATE}' denied on resource '//…'.", PERMISSION),
            f"the permission {CREATE} is missing on {REGION}; {GRANT}=roles/aiplatform.user'",
        ),
        (
            "logging",
            denied("No permission"),
            f"Google refuses (PERMISSION_DENIED): No permission; {GRANT}=roles/logging.viewer'",
        ),
        (
            "aiplatform",
            denied("Permission 'tpu.nodes.create' denied"),
            "tpu.nodes.create is missing on project p; request a role with it from the project's",
        ),
        (
            "storage",
            denied("Permission 'storage.buckets.get' denied on resource"),
            f"'gcloud storage buckets add-iam-policy-binding gs://BUCKET {MEMBER} --role=roles/st",
        ),
        (
            "aiplatform",
            denied("The API has not been used in project 7 before or it is disabled.", DISABLED),
            f"x.googleapis.com {ENABLE.format(7, 'x.googleapis.com')} a minute, or see "
            "https://console.example/enable",
        ),
        (
            "logging",
            denied(UNUSED, detail("Help", links=[{"url": "https://console.example/help"}])),
            f"logging.googleapis.com {ENABLE.format('p', 'logging.googleapis.com')} a minute, or "
            "see https://console.example/help",
        ),
        (
            "aiplatform",
            denied("…", info("BILLING_DISABLED", consumer="projects/7")),
            "project 7 has no billing account; run 'gcloud billing projects link 7 --billing-acc",
        ),
        (
            "aiplatform",
            denied("No.", info("USER_PROJECT_DENIED", consumer="projects/q")),
            f"set-quota-project PROJECT' with one of yours, or {GRANT}=roles/serviceusage.serviceU",
        ),
        (
            "aiplatform",
            denied(
                "Permission denied on resource project My First Project.",
                info("CONSUMER_INVALID", consumer="projects/My First Project"),
            ),
            "project My First Project does not exist, or these credentials have no access to it; "
            "set the id of your project (see 'gcloud projects list')",
        ),
    ],
)
def test_forbidden_names_the_cause_and_the_command_that_fixes_it(service, content, message):
    error = error_of(403, content, service=service)
    assert message in str(error)
    assert (error.status, type(error)) == (403, GoogleError)
    is_disabled = " is not enabled in " in message
    assert (error.error_reason == "SERVICE_DISABLED") == is_disabled
    assert error.service == (message.split()[0] if is_disabled else f"{service}.googleapis.com")


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("artifactregistry.repositories.getIamPolicy", "iam.securityReviewer"),
        ("iam.serviceAccounts.get", "iam.serviceAccountUser"),
        ("resourcemanager.projects.getIamPolicy", "browser"),
        ("storage.objects.create", "storage.objectAdmin"),
        ("artifactregistry", "artifactregistry.reader"),
        ("cloudresourcemanager", "browser"),
    ],
)
def test_each_permission_has_a_role_and_each_service_where_none_is_named(name, role):
    service, text = ("x", f"Permission '{name}' denied") if "." in name else (name, "No permission")
    error = error_of(403, denied(text), service=service, member="serviceAccount:b@p")
    assert str(error).endswith(f" --member=serviceAccount:b@p --role=roles/{role}'")


VIOLATIONS = [
    {"field": "job_spec.timeout", "description": "Too\nlong."},
    {"field": "display_name", "description": "Empty"},
]
ACT_AS = "You do not have permission to act as service_account"
ACCOUNT = "trainer@my-project.iam.gserviceaccount.com"
LOGIN = "run 'gcloud auth application-default login'"


@pytest.mark.parametrize(
    ("status", "content", "message"),
    [
        (
            400,
            body(400, "INVALID_ARGUMENT", "…", detail("BadRequest", fieldViolations=VIOLATIONS)),
            "Google refuses the request: job_spec.timeout: Too long; display_name: Empty",
        ),
        (400, body(400, "ABORTED", "It has ended."), "Google refuses (ABORTED): It has ended"),
        (
            400,
            body(400, "INVALID_ARGUMENT", f"{ACT_AS}: {ACCOUNT}. (or it may not exist)."),
            f"no permission to run jobs as {ACCOUNT}, or it does not exist; have an administrator "
            f"run 'gcloud iam service-accounts add-iam-policy-binding {ACCOUNT} {MEMBER} "
            "--role=roles/iam.serviceAccountUser'",
        ),
        (401, body(401, "", "Old."), f"Google does not accept the credentials (Old); {LOGIN}"),
        (404, body(404, "NOT_FOUND", "No such job."), "not found: No such job"),
        (409, b"[]", "Google refuses (CONFLICT): []"),
        (418, b"<html><b>A</b>\nproxy</html>", "Google refuses (I'M_A_TEAPOT): A proxy"),
        (302, b"", "Google refuses (FOUND): HTTP status 302"),
        (499, b'[{"error": {"message": "wrapped"}}]', "Google refuses (499): wrapped"),
    ],
)
def test_other_errors(status, content, message):
    error = error_of(status, content)
    assert (str(error), isinstance(error, RetryableError)) == (message, False)


QUOTA = "The following quota metrics exceed quota limits: aiplatform.googleapis.com/x_gpus"


def exhausted(message: str, *details: dict) -> bytes:
    return body(429, "RESOURCE_EXHAUSTED", message, *details)


@pytest.mark.parametrize(
    ("content", "is_quota"),
    [
        (exhausted(QUOTA), True),
        (exhausted("…", detail("QuotaFailure", violations=[{"description": QUOTA}])), True),
        (exhausted("Quota exceeded for 'Reads per minute'"), False),
        (exhausted("…", info("RATE_LIMIT_EXCEEDED")), False),
        (b"slow down", False),
    ],
)
def test_a_rate_limit_is_no_quota_of_machines(content, is_quota):
    error = error_of(429, content)
    assert isinstance(error, RetryableError)
    assert error.reason == ("RESOURCE_EXHAUSTED" if is_quota else "RATE_LIMIT_EXCEEDED")
    assert not error.may_have_been_processed
    if is_quota:
        assert str(error) == (
            f"the quota is exceeded: {QUOTA}; choose another machine or region, or request "
            "more at https://console.cloud.google.com/iam-admin/quotas?project=p"
        )
    else:
        assert str(error).startswith("aiplatform.googleapis.com answers 429 (")


@pytest.mark.parametrize(
    ("header", "wait"), [("7", 7.0), ("-7", 0.0), ("soon", 0.0), ("nan", 0.0), (None, 3.5)]
)
def test_the_delay_before_a_retry(header, wait):
    details = [] if header else [detail("RetryInfo", retryDelay="3.5s")]
    headers = {"Retry-After": header} if header else {}
    assert error_of(503, body(503, "UNAVAILABLE", "…", *details), headers).wait == wait


JSON = some.recursive(
    some.none() | some.booleans() | some.floats() | some.text(),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
)
KINDS = ("ErrorInfo", "BadRequest", "QuotaFailure", "Help", "RetryInfo", "Other")
FIELDS = ("metadata", "reason", "fieldViolations", "violations", "links", "retryDelay")
DETAIL = some.fixed_dictionaries(
    {"@type": some.sampled_from([f"{RPC}{kind}" for kind in KINDS])},
    optional=dict.fromkeys(FIELDS, JSON),
)
ERRORS = some.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("code", "message", "status"), JSON)
    | {"details": JSON | some.lists(DETAIL)},
)


@given(
    some.sampled_from([400, 401, 403, 404, 429, 503]) | some.integers(300, 599),
    some.binary() | ERRORS.map(lambda e: json.dumps({"error": e}).encode()),
)
def test_any_response_gives_a_message_in_one_line(status, content):
    text = str(error_of(status, content))
    assert "\n" not in text
    assert 0 < len(text) < 3_000
