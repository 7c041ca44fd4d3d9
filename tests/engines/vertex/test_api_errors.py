"""The messages of Google's errors; the bodies are in the words of its services."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some
from requests import Response

from distlaunch.engines.vertex.api_errors import ErrorResponse
from distlaunch.errors import GoogleError, RetryableError

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
    response = Response()
    response.status_code, response._content = status, content
    response.headers.update(headers or {})
    response.url = f"https://{service}.googleapis.com/storage/v1/b/data/o"
    return ErrorResponse(response, service, "p", member).error()


MEMBER = "--member=user:$(gcloud config get account)"
GRANT = f"have an administrator run 'gcloud projects add-iam-policy-binding p {MEMBER} --role"
CREATE = "aiplatform.customJobs.create"
REGION = "projects/p/locations/us-central1"
PERMISSION = info("IAM_PERMISSION_DENIED", permission=CREATE, resource=REGION)
UNUSED = "Cloud Logging API has not been used in project 7 before or it is disabled"
ENABLE = "run 'gcloud services enable {1} --project={0}' and wait a minute"
DISABLED = info(
    "SERVICE_DISABLED",
    service="x.googleapis.com",
    consumer="projects/7",
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
            "the permission storage.buckets.get is missing on gs://data; have an administrator run "
            f"'gcloud storage buckets add-iam-policy-binding gs://data {MEMBER} --role=roles/st",
        ),
        (
            "aiplatform",
            denied("The API has not been used in project 7 before or it is disabled.", DISABLED),
            f"or it is disabled; {ENABLE.format(7, 'x.googleapis.com')}",
        ),
        (
            "logging",
            denied(UNUSED),
            f"or it is disabled; {ENABLE.format(7, 'logging.googleapis.com')}",
        ),
        (
            "aiplatform",
            denied("…", info("BILLING_DISABLED", consumer="projects/7")),
            "…; run 'gcloud billing projects link 7 --billing-account=ACCOUNT'",
        ),
        (
            "aiplatform",
            denied("No.", info("USER_PROJECT_DENIED", consumer="projects/q")),
            "No; run 'gcloud auth application-default set-quota-project PROJECT' with one of "
            "yours, or have an administrator run 'gcloud projects add-iam-policy-binding q "
            f"{MEMBER} --role=roles/serviceusage.serviceUsageConsumer'",
        ),
        (
            "aiplatform",
            denied(
                "Permission denied on resource project My First Project.",
                info("CONSUMER_INVALID", consumer="projects/My First Project"),
            ),
            "project My First Project; set the id of a project that these credentials can use (see "
            "'gcloud projects list')",
        ),
    ],
)
def test_forbidden_names_the_cause_and_the_command_that_fixes_it(service, content, message):
    error = error_of(403, content, service=service)
    assert message in str(error)
    assert (error.status, type(error)) == (403, GoogleError)
    is_disabled = "services enable" in message
    assert (error.error_reason == "SERVICE_DISABLED") == is_disabled
    named = "x" if DISABLED["metadata"]["service"] in message else service
    assert error.service == f"{named}.googleapis.com"


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
            f"Google refuses (INVALID_ARGUMENT): {ACT_AS}: {ACCOUNT}. (or it may not exist); have "
            "an administrator run 'gcloud iam service-accounts add-iam-policy-binding "
            f"{ACCOUNT} {MEMBER} --role=roles/iam.serviceAccountUser'",
        ),
        (401, body(401, "", "Old."), f"Google does not accept the credentials (Old); {LOGIN}"),
        (404, body(404, "NOT_FOUND", "No such job."), "not found: No such job"),
        (409, b"[]", "Google refuses (CONFLICT): []"),
        (418, b"<p>Not a <b>page</b>\n</p>", "Google refuses (I'M_A_TEAPOT): Not a page"),
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
    more = "request more at https://console.cloud.google.com/iam-admin/quotas?project=p"
    if is_quota:
        assert str(error) == (
            f"the quota is exceeded: {QUOTA}; choose another machine or region, or {more}"
        )
    else:
        assert str(error).startswith("aiplatform.googleapis.com answers 429 (")
        is_google = content != b"slow down"
        assert str(error).endswith(f"); try again in a minute, or {more}") is is_google


@pytest.mark.parametrize("status", [403, 404, 407, 302])
def test_a_page_of_a_proxy_is_no_refusal_of_google(status):
    page = b"<HTML><head><title>Squid</title></head><body>Access\ndenied</body></HTML>"
    error = error_of(status, page, service="storage")
    assert str(error) == (
        f"storage.googleapis.com answers {status} with a page that is not Google's (Squid Access "
        "denied): a proxy or firewall is in between; contact your network's administrators, or set "
        "HTTPS_PROXY and NO_PROXY"
    )
    assert error.status == 0  # neither a missing role nor a missing resource


def test_a_page_of_google_is_no_proxy_s():
    page = b"<!DOCTYPE html>\n<html lang=en><title>Error 404 (Not Found)!!1</title><p>404."
    assert str(error_of(404, page)) == "not found: Error 404 (Not Found)!!1 404"


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


IDENTIFIER = "Hx7q0"
ROBOT = "trainer@demo-project.iam.gserviceaccount.com"
AGENT = "service-123@gcp-sa-aiplatform-cc.iam.gserviceaccount.com"
PROHIBITED = "Request is prohibited by organization's policy."
OBJECTS = "storage.objects.list access to the Google Cloud Storage bucket."
NO_BILLING = "The billing account for the owning project is disabled in state absent"


def legacy(reason: str, message: str) -> bytes:
    errors = [{"message": message, "domain": "global", "reason": reason}]
    return json.dumps({"error": {"code": 403, "message": message, "errors": errors}}).encode()


@pytest.mark.parametrize(
    ("service", "content", "parts"),
    [
        (
            "aiplatform",
            denied(
                PROHIBITED,
                detail("PreconditionFailure", violations=[{"type": "VPC_SERVICE_CONTROLS"}]),
                info(
                    "SECURITY_POLICY_VIOLATED", uid=IDENTIFIER, service="aiplatform.googleapis.com"
                ),
            ),
            [IDENTIFIER, "; send the identifier to the administrators", "no role does"],
        ),
        (
            "storage",
            legacy(
                "vpcServiceControls",
                f"{PROHIBITED} vpcServiceControlsUniqueIdentifier: {IDENTIFIER}",
            ),
            [IDENTIFIER, "no role does"],
        ),
        (
            "aiplatform",
            denied("Disallowed by organization's constraints/gcp.restrictServiceUsage constraint."),
            ["'gcloud org-policies describe gcp.restrictServiceUsage --project=p --effective'"],
        ),
        (
            "aiplatform",
            denied("Violates policies", info("RESOURCE_USAGE_RESTRICTION_VIOLATED")),
            ["; have an administrator of the organisation's policies allow it"],
        ),
        (
            "aiplatform",
            denied("Request had insufficient authentication scopes."),
            ["set-service-account VM --scopes=cloud-platform'", "no role helps"],
        ),
        (
            "storage",
            legacy("accountDisabled", NO_BILLING),
            [f"{NO_BILLING}; run 'gcloud billing projects link PROJECT --billing-account=ACCOUNT'"],
        ),
        (
            "aiplatform",
            denied("Permission denied: Consumer 'project:p' has been suspended."),
            ["an owner of the suspended project can appeal"],
        ),
        (
            "aiplatform",
            denied("Permission denied on 'locations/us-central9' (or it may not exist)."),
            ["; choose another location"],
        ),
        (
            "aiplatform",
            denied("No.", info("LOCATION_POLICY_VIOLATED", location="us-central9")),
            ["; choose another location"],
        ),
        ("storage", b"<html>A proxy refuses</html>", ["A proxy refuses"]),
        (
            "aiplatform",
            denied("No.", info("NEW_REASON")),
            ["Google refuses (PERMISSION_DENIED): No"],
        ),
    ],
)
def test_a_reason_that_no_role_fixes_has_a_remedy_of_its_own(service, content, parts):
    error = error_of(403, content, service=service)
    for part in parts:
        assert part in str(error)
    assert "add-iam-policy-binding" not in str(error)


@pytest.mark.parametrize("caller", [ROBOT, "ann@students.uni.edu", "service-1@a-b.c-d.example.com"])
def test_a_permission_is_one_that_google_names(caller):
    error = error_of(
        403, legacy("forbidden", f"{caller} does not have {OBJECTS}"), service="storage"
    )
    assert str(error).startswith("the permission storage.objects.list is missing on gs://data; ")
    assert str(error).endswith(f"gs://data {MEMBER} --role=roles/storage.objectViewer'")
    error = error_of(403, denied(f"{caller} may not call aiplatform.googleapis.com"))
    assert "the permission" not in str(error)


def test_the_image_of_a_job_that_the_service_agent_cannot_pull():
    repository = "projects/q/locations/europe-west4/repositories/training"
    text = f"Vertex AI Service Agent {AGENT} does not have permission to access Artifact Registry"
    content = body(400, "FAILED_PRECONDITION", f"{text} repository {repository}.")
    assert str(error_of(400, content)).endswith(
        "; on a project's first job submit again in some minutes, otherwise have an administrator "
        "run 'gcloud artifacts repositories add-iam-policy-binding training --project=q "
        f"--location=europe-west4 --member=serviceAccount:{AGENT} "
        "--role=roles/artifactregistry.reader'"
    )
