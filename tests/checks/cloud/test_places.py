"""The project, bucket, repository and service account, by Google's responses for them."""

from __future__ import annotations

import pytest

from distlaunch.job.model import Image

from ...google.servers import Reply, refused  # noqa: TID252 - tests are no package

AGENT = "serviceAccount:service-123@gcp-sa-aiplatform.iam.gserviceaccount.com"
PROJECT, BUCKET = "/v3/projects/demo-project", "/b/demo-bucket"
REPOSITORY = "/locations/us-central1/repositories/training"
ACCOUNT = "/serviceAccounts/trainer@demo-project.iam.gserviceaccount.com"
TEST = ":testIamPermissions"
SEEN = "/services/aiplatform.googleapis.com"
OTHERS = Image("us-central1-docker.pkg.dev/other/training/digits")


@pytest.fixture
def codes(job, look, serve_google):
    """Return the codes of a job's problems with some responses replaced."""

    def run(answers, **fields):
        return [problem.code for problem in look(job(**fields), serve_google(answers).url)]

    return run


def test_a_missing_project_is_an_error(codes, denied, missing):
    assert codes({PROJECT: missing}) == ["project-missing"]
    leaving = {"name": "projects/123", "state": "DELETE_REQUESTED"}
    assert codes({PROJECT: leaving}) == ["project-missing"]
    hidden = {PROJECT: denied(), f"{PROJECT}{TEST}": {}}
    assert codes({**hidden, SEEN: denied()}) == ["project-missing"]
    assert codes({**hidden, f"{PROJECT}{TEST}": denied(), SEEN: denied()}) == ["project-missing"]


def test_a_project_that_some_api_knows_is_not_missing(codes, denied):
    hidden = {PROJECT: denied(), f"{PROJECT}{TEST}": denied()}
    assert codes({**hidden, SEEN: {"state": "ENABLED"}}) == ["unanswered"]
    off = denied(why="SERVICE_DISABLED")
    assert codes({PROJECT: off, f"{PROJECT}{TEST}": off, SEEN: denied()}) == ["unanswered"]
    assert codes({PROJECT: denied()}) == ["unanswered"]


def test_a_disabled_api_is_reported_once(codes, denied):
    off = denied(why="SERVICE_DISABLED")
    off.body["error"]["details"][0]["metadata"] = {"service": "aiplatform.googleapis.com"}
    names = [
        {"name": "projects/123/services/aiplatform.googleapis.com", "state": "DISABLED"},
        {"name": "projects/123/services/logging.googleapis.com", "state": "ENABLED"},
    ]
    quota = {"consumerQuotaLimits": [{"quotaBuckets": [{"effectiveLimit": "99"}]}]}
    answers = {"services:batchGet": {"services": names}, "/customJobs": off, "_cpus": quota}
    assert codes(answers) == ["api-disabled"]


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (["create", "delete", "get", "list"], ["unanswered"]),
        (["get", "list"], ["bucket-denied"]),
        ([], ["bucket-denied"]),
    ],
)
def test_a_bucket_may_be_writable_and_not_visible(held, expected, codes, denied):
    """An object admin of a bucket has no storage.buckets.get."""
    may = {"permissions": [f"storage.objects.{verb}" for verb in held]}
    answers = {BUCKET: denied("storage.buckets.get"), "/iam/testPermissions": may}
    assert codes(answers) == expected


def remedy(look, job, server):
    [problem] = look(job(), server.url)
    assert problem.code == "unanswered"
    return problem.remedy


def test_remedies_name_the_missing_role(job, look, serve_google, denied):
    me = "--member=user:$(gcloud config get account)"
    plain = denied()
    assert remedy(look, job, serve_google({BUCKET: denied("storage.buckets.get")})) == (
        "have an administrator run 'gcloud storage buckets add-iam-policy-binding gs://demo-bucket "
        f"{me} --role=roles/storage.legacyBucketReader'"
    )
    assert remedy(look, job, serve_google({REPOSITORY: plain})).endswith(
        f"--location=us-central1 {me} --role=roles/artifactregistry.reader'"
    )
    assert remedy(
        look, job, serve_google({REPOSITORY: plain, f"{REPOSITORY}{TEST}": plain})
    ).endswith(f"{me} --role=roles/artifactregistry.reader'")
    for answers in ({PROJECT: plain}, {f"{PROJECT}{TEST}": plain}):
        assert remedy(look, job, serve_google(answers)).endswith(f"{me} --role=roles/browser'")
    assert remedy(look, job, serve_google({f"{ACCOUNT}{TEST}": plain})).endswith(
        f"{me} --role=roles/iam.serviceAccountUser'"
    )


def test_an_error_that_only_mentions_an_api_is_reported(job, look, serve_google):
    names = [{"name": "projects/1/services/logging.googleapis.com", "state": "DISABLED"}]
    refusal = refused(403, "PERMISSION_DENIED", "logging.googleapis.com is not visible")
    answers = {"services:batchGet": {"services": names}, "/billingInfo": refusal}
    found = look(job(), serve_google(answers).url)
    assert [problem.code for problem in found] == ["api-disabled", "unanswered"]


def test_a_bucket_in_several_regions_is_a_warning(job, look, serve_google):
    nam4 = {"location": "NAM4", "locationType": "dual-region"}
    [problem] = look(job(), serve_google({BUCKET: nam4}).url)
    assert (problem.severity, problem.code) == ("warning", "bucket-not-regional")
    assert (
        problem.what == "it is a dual-region bucket (nam4); a bucket in the job's region is faster"
    )
    assert problem.remedy.endswith("and set bucket: gs://demo-bucket-us-central1")


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("us-central1", []),
        ("us", []),
        ("us-east4", []),
        ("northamerica-northeast1", []),
        ("southamerica-east1", ["repository-far"]),
        ("europe", ["repository-far"]),
        ("europe-west4", ["repository-far"]),
        ("asia", ["repository-far"]),
    ],
)
def test_a_repository_on_another_continent_is_a_warning(location, expected, codes):
    image = Image(f"{location}-docker.pkg.dev/demo-project/training/digits")
    assert codes({}, image=image) == expected


def test_a_repository_must_accept_images(codes, denied):
    assert codes({REPOSITORY: {"format": "NPM"}}) == ["repository-format"]
    remote = {"format": "DOCKER", "mode": "REMOTE_REPOSITORY"}
    assert codes({REPOSITORY: remote}) == ["repository-format"]
    assert codes({REPOSITORY: denied(), f"{REPOSITORY}{TEST}": {}}) == ["repository-denied"]
    assert codes({REPOSITORY: denied()}) == ["unanswered"]


def policy(role, *members):
    return {"bindings": [{"role": role, "members": list(members)}]}


@pytest.mark.parametrize(
    ("of_project", "of_repository", "expected"),
    [
        ({}, policy("roles/artifactregistry.reader", AGENT), []),
        (policy("roles/viewer", AGENT), {}, []),
        (policy("projects/demo-project/roles/own", AGENT), {}, []),
        ({}, policy("roles/artifactregistry.reader", "allUsers"), []),
        (policy("roles/aiplatform.user", AGENT), {}, ["agent-cannot-pull"]),
        (policy("roles/owner", "user:me@example.com"), {}, ["agent-cannot-pull"]),
        ({}, {}, ["agent-cannot-pull"]),
        (Reply(403, {}), {}, []),
        ({}, Reply(403, {}), []),
    ],
)
def test_the_service_agent_needs_access_to_the_own_repository(
    of_project, of_repository, expected, codes
):
    answers = {
        f"{PROJECT}:getIamPolicy": of_project,
        f"{REPOSITORY}:getIamPolicy": of_repository,
    }
    assert codes(answers) == expected


@pytest.mark.parametrize(
    ("of_project", "of_repository", "expected"),
    [
        (Reply(403, {}), policy("roles/artifactregistry.reader", AGENT), []),
        (policy("roles/artifactregistry.admin", AGENT), {}, []),
        ({}, {}, ["agent-cannot-pull"]),
        (Reply(403, {}), {}, ["unanswered"]),
        ({}, Reply(403, {}), ["unanswered"]),
    ],
)
def test_the_service_agent_needs_access_to_another_repository(
    of_project, of_repository, expected, codes
):
    answers = {
        "/v3/projects/other:getIamPolicy": of_project,
        f"{REPOSITORY}:getIamPolicy": of_repository,
    }
    assert codes(answers, image=OTHERS) == expected


def test_an_account_may_be_usable_and_not_visible(codes, denied, missing):
    assert codes({ACCOUNT: denied("iam.serviceAccounts.get")}) == []
    hidden = {ACCOUNT: denied(), f"{ACCOUNT}{TEST}": {}}
    assert codes(hidden) == ["account-denied"]
    assert codes({ACCOUNT: {"disabled": True}}) == ["account-denied"]
    assert codes({ACCOUNT: missing, f"{ACCOUNT}{TEST}": missing}) == ["account-missing"]
