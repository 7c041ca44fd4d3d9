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

DENIED = Refused(403, "Permission denied on resource (or it may not exist).")
DISABLED = Refused(403, "Off.", "SERVICE_DISABLED", service="aiplatform.googleapis.com")
MISSING = Refused(404)
NO_ACCESS = {PROJECT: DENIED, f"{PROJECT}{TEST}": DENIED}


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        ({PROJECT: MISSING}, "project-missing"),
        ({PROJECT: {"state": "DELETE_REQUESTED"}}, "project-missing"),
        ({PROJECT: DENIED, f"{PROJECT}{TEST}": {}, API: DENIED}, "project-missing"),
        ({**NO_ACCESS, API: DENIED}, "project-missing"),
        ({**NO_ACCESS, API: {"state": "ENABLED"}}, "unanswered"),
        ({PROJECT: DISABLED, f"{PROJECT}{TEST}": DISABLED, API: DENIED}, "unanswered"),
        ({PROJECT: DENIED}, "unanswered"),
    ],
)
def test_a_project_is_missing_if_no_api_knows_it(answers, code, codes):
    assert codes(answers) == [code]


def test_a_disabled_api_is_reported_once(codes):
    names = [{"name": f"projects/123{API}", "state": "DISABLED"}]
    answers = {"services:batchGet": {"services": names}, "/customJobs": DISABLED}
    assert codes(answers | {"_cpus": quota("99")}) == ["api-disabled"]
    only_mentioned = Refused(403, "aiplatform.googleapis.com is not visible")
    assert codes(answers | {"/billingInfo": only_mentioned}) == ["api-disabled", "unanswered"]


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (["create", "delete", "get", "list"], ["unanswered"]),
        (["get", "list"], ["bucket-denied"]),
        ([], ["bucket-denied"]),
    ],
)
def test_a_bucket_may_be_writable_and_not_visible(held, expected, codes):
    """An object admin of a bucket has no storage.buckets.get."""
    permissions = {"permissions": [f"storage.objects.{verb}" for verb in held]}
    assert codes({BUCKET: DENIED, "/iam/testPermissions": permissions}) == expected


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
    ("location", "expected"),
    [
        ("us", []),
        ("us-east4", []),
        ("northamerica-northeast1", []),
        ("southamerica-east1", ["repository-far"]),
        ("europe", ["repository-far"]),
        ("europe-west4", ["repository-far"]),
    ],
)
def test_a_repository_on_another_continent_is_a_warning(location, expected, codes):
    image = Image(f"{location}-docker.pkg.dev/demo-project/training/digits")
    assert codes({}, image=image) == expected


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({REPOSITORY: {"format": "DOCKER", "mode": "REMOTE_REPOSITORY"}}, ["repository-format"]),
        ({REPOSITORY: DENIED, f"{REPOSITORY}{TEST}": {}}, ["repository-denied"]),
        ({ACCOUNT: DENIED, f"{ACCOUNT}{TEST}": {}}, ["account-denied"]),
        ({ACCOUNT: {"disabled": True}}, ["account-denied"]),
        ({ACCOUNT: DENIED}, []),  # it may be usable and not visible
    ],
)
def test_a_repository_must_accept_images_and_an_account_jobs(answers, expected, codes):
    assert codes(answers) == expected


BOARD = "projects/demo-project/locations/us-central1/tensorboards/456"


EXPERIMENT = (
    "projects/demo-project/locations/us-central1/metadataStores/default/contexts/handwriting"
)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [({}, []), ({BOARD: MISSING, EXPERIMENT: MISSING}, ["missing"])],
)
@pytest.mark.parametrize("field", [{"tensorboard": BOARD}, {"experiment": "handwriting"}])
def test_a_tensorboard_and_an_experiment_must_exist(answers, expected, field, codes):
    assert codes(answers, **field) == [f"{name}-{code}" for name in field for code in expected]


def test_the_command_that_creates_an_experiment_is_printed(check):
    (problem,) = check({"experiment": "handwriting"}, answers={EXPERIMENT: MISSING})
    create = "aiplatform.Experiment.create('handwriting', project='demo-project', location="
    assert create in problem.remedy


def test_a_tensorboard_that_may_not_be_read_is_a_warning(check):
    (problem,) = check({"tensorboard": BOARD}, answers={BOARD: DENIED})
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
