"""The project, bucket, repository and service accounts, by Google's responses for them."""

from __future__ import annotations

import pytest
from fake_google import AGENT, Refused, policy, quota

from distlaunch.job.model import Image

PROJECT, BUCKET = "/v3/projects/demo-project", "/b/demo-bucket"
REPOSITORY = "/locations/us-central1/repositories/training"
ACCOUNT = "/serviceAccounts/trainer@demo-project.iam.gserviceaccount.com"
TEST = ":testIamPermissions"
API = "/services/aiplatform.googleapis.com"
BOARD = "projects/demo-project/locations/us-central1/tensorboards/456"
CONTEXTS = "projects/demo-project/locations/us-central1/metadataStores/default/contexts"

DENIED = Refused(403, "Permission denied on resource (or it may not exist).")
DISABLED = Refused(403, "Off.", "SERVICE_DISABLED", service="aiplatform.googleapis.com")
MISSING = Refused(404)
NO_ACCESS = {PROJECT: DENIED, f"{PROJECT}{TEST}": DENIED}


def permitted(*verbs):
    """Return the answers for a bucket that may not be read, with permissions on its objects."""
    permissions = {"permissions": [f"storage.objects.{verb}" for verb in verbs]}
    return {BUCKET: DENIED, "/iam/testPermissions": permissions}


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        # A project is missing if no API knows it.
        ({PROJECT: MISSING}, "project-missing"),
        ({PROJECT: {"state": "DELETE_REQUESTED"}}, "project-missing"),
        ({PROJECT: DENIED, f"{PROJECT}{TEST}": {}, API: DENIED}, "project-missing"),
        ({**NO_ACCESS, API: DENIED}, "project-missing"),
        ({**NO_ACCESS, API: {"state": "ENABLED"}}, "unanswered"),
        ({PROJECT: DISABLED, f"{PROJECT}{TEST}": DISABLED, API: DENIED}, "unanswered"),
        ({PROJECT: DENIED}, "unanswered"),
        # An object admin of a bucket has no storage.buckets.get.
        (permitted("create", "delete", "get", "list"), "unanswered"),
        (permitted("get", "list"), "bucket-denied"),
        (permitted(), "bucket-denied"),
        ({REPOSITORY: {"format": "DOCKER", "mode": "REMOTE_REPOSITORY"}}, "repository-format"),
        ({REPOSITORY: DENIED, f"{REPOSITORY}{TEST}": {}}, "repository-denied"),
        ({ACCOUNT: DENIED, f"{ACCOUNT}{TEST}": {}}, "account-denied"),
        ({ACCOUNT: {"disabled": True}}, "account-denied"),
        ({ACCOUNT: DENIED}, None),  # it may be usable and not visible
    ],
)
def test_each_resource_is_judged_by_googles_responses(answers, code, codes):
    assert codes(answers) == ([code] if code else [])


def test_a_disabled_api_is_reported_once(codes):
    names = [{"name": f"projects/123{API}", "state": "DISABLED"}]
    answers = {"services:batchGet": {"services": names}, "/customJobs": DISABLED}
    assert codes(answers | {"_cpus": quota("99")}) == ["api-disabled"]
    only_mentioned = Refused(403, "aiplatform.googleapis.com is not visible")
    assert codes(answers | {"/billingInfo": only_mentioned}) == ["api-disabled", "unanswered"]


@pytest.mark.parametrize(
    ("refused", "command", "role"),
    [
        ([BUCKET], "storage buckets", "roles/storage.legacyBucketReader"),
        ([REPOSITORY], "artifacts repositories", "roles/artifactregistry.reader"),
        ([f"{REPOSITORY}{TEST}"], "projects", "roles/artifactregistry.reader"),
        ([PROJECT], "projects", "roles/browser"),
        ([f"{PROJECT}{TEST}"], "projects", "roles/browser"),
        ([f"{ACCOUNT}{TEST}"], "projects", "roles/iam.serviceAccountUser"),
    ],
)
def test_a_refused_call_is_a_warning_with_the_role_for_it(refused, command, role, check):
    [problem] = check(answers=dict.fromkeys(refused, DENIED))
    assert problem.code == "unanswered"
    prefix = f"have an administrator run 'gcloud {command} add-iam-policy-binding "
    assert problem.remedy.startswith(prefix)
    assert problem.remedy.endswith(f" --member=user:$(gcloud config get account) --role={role}'")


@pytest.mark.parametrize(
    ("location", "is_far"),
    [
        *(("us", False), ("us-east4", False), ("northamerica-northeast1", False)),
        *(("southamerica-east1", True), ("europe", True), ("europe-west4", True)),
    ],
)
def test_a_repository_on_another_continent_is_a_warning(location, is_far, codes):
    image = Image(f"{location}-docker.pkg.dev/demo-project/training/digits")
    assert codes({}, image=image) == ["repository-far"] * is_far


@pytest.mark.parametrize(
    ("field", "path", "remedy"),
    [
        ({"tensorboard": BOARD}, BOARD, "gcloud ai tensorboards create"),
        (
            {"experiment": "handwriting"},
            f"{CONTEXTS}/handwriting",
            "aiplatform.Experiment.create('handwriting', project='demo-project', location=",
        ),
    ],
)
def test_a_tensorboard_and_an_experiment_must_exist(field, path, remedy, check):
    assert check(field) == []
    [problem] = check(field, answers={path: MISSING})
    assert problem.code == f"{next(iter(field))}-missing"
    assert remedy in problem.remedy
    [problem] = check(field, answers={path: DENIED})
    assert (problem.code, problem.severity) == ("unanswered", "warning")
    assert "--role=roles/aiplatform.viewer" in problem.remedy


PULL = "roles/artifactregistry.reader"


@pytest.mark.parametrize(
    ("project", "of_project", "of_repository", "expected"),
    [
        ("demo-project", {}, policy(PULL, AGENT), []),
        ("demo-project", policy("roles/viewer", AGENT), {}, []),
        ("demo-project", policy("projects/demo-project/roles/own", AGENT), {}, []),
        ("demo-project", {}, policy(PULL, "allUsers"), []),
        ("demo-project", policy("roles/aiplatform.user", AGENT), {}, ["agent-cannot-pull"]),
        ("demo-project", policy("roles/owner", "user:me@x.com"), {}, ["agent-cannot-pull"]),
        ("demo-project", DENIED, {}, []),
        ("demo-project", {}, DENIED, []),
        ("other", DENIED, policy(PULL, AGENT), []),
        ("other", policy("roles/artifactregistry.admin", AGENT), {}, []),
        ("vertex-ai-of-mine", {}, {}, ["agent-cannot-pull"]),
        ("vertex-ai", {}, {}, []),
        ("other", DENIED, {}, ["unanswered"]),
        ("other", {}, DENIED, ["unanswered"]),
    ],
)
def test_the_service_agent_needs_access_to_the_repository(
    project, of_project, of_repository, expected, codes
):
    answers = {
        f"/v3/projects/{project}:getIamPolicy": of_project,
        f"{REPOSITORY}:getIamPolicy": of_repository,
    }
    image = Image(f"us-central1-docker.pkg.dev/{project}/training/digits")
    assert codes(answers, image=image) == expected
