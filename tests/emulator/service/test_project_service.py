"""What is told of a project, in Google's shapes, and what it can be made to lack."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from distlaunch.emulator.service.apis import APIS
from distlaunch.emulator.store import project_number

from .discovery import misfits

NUMBER = project_number("my-project")
PROJECT = "/v1/projects/my-project"
RESOURCE = "/v3/projects/my-project"
EMAIL = "trainer@my-project.iam.gserviceaccount.com"
ACCOUNT = f"/v1/projects/-/serviceAccounts/{EMAIL}"
REPOSITORY = f"{PROJECT}/locations/us-central1/repositories/training"
BUCKET = "/storage/v1/b/my-bucket"
BATCH = f"{PROJECT}/services:batchGet"
METRICS = "/v1beta1/projects/my-project/services/aiplatform.googleapis.com/consumerQuotaMetrics"
METRIC = f"{METRICS}/{quote('aiplatform.googleapis.com/custom_model_training_cpus', safe='')}"
SKUS = "/v1/services/C7E2-9256-1C43/skus"
ASKED = ["storage.objects.create", "storage.objects.get"]
TEST = {"permissions": ASKED}
ALL = "&".join(f"names=projects/my-project/services/{api}" for api in APIS)
WAYS = [
    ("serviceusage.v1", "GET", BATCH, f"?{ALL}", None),
    ("serviceusage.v1", "GET", f"{PROJECT}/services/aiplatform.googleapis.com", "", None),
    ("serviceusage.v1beta1", "GET", METRICS, "", None),
    ("serviceusage.v1beta1", "GET", METRIC, "", None),
    ("cloudbilling.v1", "GET", f"{PROJECT}/billingInfo", "", None),
    ("cloudbilling.v1", "GET", SKUS, "?currencyCode=USD&pageSize=5000", None),
    ("cloudresourcemanager.v3", "GET", RESOURCE, "", None),
    ("cloudresourcemanager.v3", "POST", f"{RESOURCE}:testIamPermissions", "", TEST),
    ("cloudresourcemanager.v3", "POST", f"{RESOURCE}:getIamPolicy", "", {}),
    ("iam.v1", "GET", ACCOUNT, "", None),
    ("iam.v1", "POST", f"{ACCOUNT}:testIamPermissions", "", TEST),
    ("artifactregistry.v1", "GET", REPOSITORY, "", None),
    ("artifactregistry.v1", "GET", f"{REPOSITORY}:getIamPolicy", "", None),
    ("artifactregistry.v1", "POST", f"{REPOSITORY}:testIamPermissions", "", TEST),
    ("storage.v1", "GET", BUCKET, "", None),
    ("storage.v1", "GET", f"{BUCKET}/iam", "", None),
    ("storage.v1", "GET", f"{BUCKET}/iam/testPermissions", "?permissions=a.b.c", None),
]
TESTS = [
    ("POST", f"{RESOURCE}:testIamPermissions", TEST),
    ("POST", f"{ACCOUNT}:testIamPermissions", TEST),
    ("POST", f"{REPOSITORY}:testIamPermissions", TEST),
    ("GET", f"{BUCKET}/iam/testPermissions?permissions={'&permissions='.join(ASKED)}", None),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("faults", ["", "without:billing,without:agent,limit:cpus=2,bucket-in:EU"])
def test_answers_have_google_s_addresses_and_shapes(serve, faults, way):
    api, method, path, query, body = way
    reply = serve(faults).call(method, path + query, body)
    assert reply.status == 200, reply.content
    assert reply.json
    assert misfits(api, method, path, reply.json) == []


def test_all_apis_are_on_but_those_that_are_not(serve):
    told = serve("without:logging.googleapis.com").call("GET", f"{BATCH}?{ALL}").json["services"]
    states = {each["name"].rpartition("/")[2]: each["state"] for each in told}
    assert list(states) == list(APIS)
    assert [api for api, state in states.items() if state != "ENABLED"] == [
        "logging.googleapis.com"
    ]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 400),
        ("&".join(["names=projects/my-project/services/iam.googleapis.com"] * 31), 400),
        ("names=projects/other/services/iam.googleapis.com", 400),
        ("names=iam.googleapis.com", 400),
        ("names=projects/my-project/services/nothing.googleapis.com", 403),
    ],
)
def test_apis_that_cannot_be_asked_for(service, query, status):
    assert service.call("GET", f"{BATCH}?{query}").status == status


def test_an_api_that_is_off_answers_nothing_and_the_others_do(serve):
    service = serve("without:aiplatform.googleapis.com")
    reply = service.call("GET", f"{PROJECT}/locations/us-central1/customJobs")
    assert reply.status == 403
    assert [each.get("reason") for each in reply.error["details"]] == [None, "SERVICE_DISABLED"]
    assert service.call("GET", METRIC).status == 200


def test_billing_is_on_but_where_it_is_not(service, serve, custom_job):
    told = service.call("GET", f"{PROJECT}/billingInfo").json
    assert (told["billingEnabled"], told["projectId"]) == (True, "my-project")
    off = serve("without:billing")
    told = off.call("GET", f"{PROJECT}/billingInfo").json
    assert (told["billingEnabled"], told["billingAccountName"]) == (False, "")
    refused = off.create(custom_job).error
    assert refused["details"][1]["reason"] == "BILLING_DISABLED"
    assert NUMBER in refused["message"]


def test_a_project_is_known_by_its_number_as_well(service):
    by_number = f"/v3/projects/{NUMBER}"
    assert service.call("GET", by_number).json["projectId"] == f"project-{NUMBER}"
    told = service.call("GET", RESOURCE).json
    assert (told["name"], told["projectId"]) == (f"projects/{NUMBER}", "my-project")
    assert service.call("GET", by_number).json == told


@pytest.mark.parametrize(
    ("method", "path"),
    [
        (method, path + query)
        for _, method, path, query, _ in WAYS
        if "/projects/my-project" in path
    ],
)
def test_a_project_that_is_not_there_is_one_that_may_not_be_seen(serve, method, path):
    reply = serve("without:project").call(method, path, {} if method == "POST" else None)
    assert (reply.status, reply.error["status"]) == (403, "PERMISSION_DENIED")
    assert "my-project" in reply.error["message"]


def test_a_service_agent_has_its_role_unless_it_lacks_it(service, serve):
    def members(of) -> list[str]:
        policy = of.call("POST", f"{RESOURCE}:getIamPolicy", {}).json
        bindings = {each["role"]: each["members"] for each in policy["bindings"]}
        return bindings.get("roles/aiplatform.serviceAgent", [])

    agent = f"serviceAccount:service-{NUMBER}@gcp-sa-aiplatform"
    assert members(service) == [
        f"{agent}.iam.gserviceaccount.com",
        f"{agent}-cc.iam.gserviceaccount.com",
    ]
    assert members(serve("without:agent")) == []


@pytest.mark.parametrize(("method", "path", "body"), TESTS)
def test_all_permissions_are_held_but_those_that_are_lacking(serve, method, path, body):
    assert serve().call(method, path, body).json["permissions"] == ASKED
    service = serve("without:storage.objects.create")
    assert service.call(method, path, body).json["permissions"] == ["storage.objects.get"]
    nothing = serve("without:storage.objects.create,without:storage.objects.get")
    assert "permissions" not in nothing.call(method, path, body).json


@pytest.mark.parametrize("permissions", ["a.b.c", [1], ["storage.*"], ["a.b.c"] * 101, {"a": 1}])
def test_permissions_that_cannot_be_tested(service, permissions):
    body = {"permissions": permissions}
    assert service.call("POST", f"{RESOURCE}:testIamPermissions", body).status == 400


@pytest.mark.parametrize(
    ("permission", "method", "path"),
    [
        ("serviceusage.services.get", "GET", f"{BATCH}?{ALL}"),
        ("serviceusage.quotas.get", "GET", METRICS),
        ("resourcemanager.projects.get", "GET", RESOURCE),
        ("resourcemanager.projects.get", "GET", f"{PROJECT}/billingInfo"),
        ("resourcemanager.projects.getIamPolicy", "POST", f"{RESOURCE}:getIamPolicy"),
        ("iam.serviceAccounts.get", "GET", ACCOUNT),
        ("artifactregistry.repositories.get", "GET", REPOSITORY),
        ("artifactregistry.repositories.getIamPolicy", "GET", f"{REPOSITORY}:getIamPolicy"),
        ("aiplatform.customJobs.create", "POST", f"{PROJECT}/locations/us-central1/customJobs"),
        ("logging.logEntries.list", "POST", "/v2/entries:list"),
        ("storage.buckets.get", "GET", BUCKET),
        ("storage.buckets.getIamPolicy", "GET", f"{BUCKET}/iam"),
        ("storage.buckets.create", "POST", "/storage/v1/b"),
        ("storage.buckets.list", "GET", "/storage/v1/b?project=my-project"),
        ("storage.objects.list", "GET", f"{BUCKET}/o"),
        ("storage.objects.get", "GET", f"{BUCKET}/o/a"),
        ("storage.objects.get", "GET", "/my-bucket/a"),
        ("storage.objects.update", "PATCH", f"{BUCKET}/o/a"),
        ("storage.objects.delete", "DELETE", f"{BUCKET}/o/a"),
        ("storage.objects.create", "POST", f"{BUCKET}/o/a/compose"),
        ("storage.objects.create", "POST", f"/upload{BUCKET}/o?uploadType=media&name=a"),
        ("storage.objects.create", "PUT", "/my-bucket/a"),
    ],
)
def test_a_call_names_the_permission_that_it_lacks(serve, permission, method, path):
    reply = serve(f"without:{permission}").call(method, path, {} if method != "GET" else None)
    assert reply.status == 403
    assert f"'{permission}'" in reply.error["message"]


def test_accounts_are_there_in_their_projects(service, serve):
    told = service.call("GET", ACCOUNT).json
    assert (told["email"], told["projectId"]) == (EMAIL, "my-project")
    assert told["name"] == f"projects/my-project/serviceAccounts/{EMAIL}"
    compute = (
        f"/v1/projects/{NUMBER}/serviceAccounts/{NUMBER}-compute@developer.gserviceaccount.com"
    )
    assert service.call("GET", compute).json["projectId"] == NUMBER
    for path in (ACCOUNT, ACCOUNT.replace(EMAIL, "somebody@example.com")):
        lacking = serve("without:account") if path == ACCOUNT else service
        assert lacking.call("GET", path).error["status"] == "NOT_FOUND"
        tested = lacking.call("POST", f"{path}:testIamPermissions", TEST)
        assert tested.error["status"] == "NOT_FOUND"


def test_repositories_are_there_and_hold_images(serve):
    told = serve().call("GET", REPOSITORY).json
    assert told["name"] == REPOSITORY.removeprefix("/v1/")
    assert (told["format"], told["registryUri"]) == (
        "DOCKER",
        "us-central1-docker.pkg.dev/my-project/training",
    )
    assert serve("repository-format:NPM").call("GET", REPOSITORY).json["format"] == "NPM"
    lacking = serve("without:repository")
    for method, way in (("GET", ""), ("GET", ":getIamPolicy"), ("POST", ":testIamPermissions")):
        body = TEST if method == "POST" else None
        assert lacking.call(method, REPOSITORY + way, body).error["status"] == "NOT_FOUND"


def test_buckets_are_where_they_are_said_to_be(serve):
    told = serve().call("GET", BUCKET).json
    assert (told["locationType"], told["location"]) == ("region", "EUROPE-WEST4")
    told = serve("bucket-in:nam4").call("GET", BUCKET).json
    assert (told["locationType"], told["location"]) == ("dual-region", "NAM4")


def test_a_bucket_that_is_lacking_can_be_made(serve):
    service = serve("without:bucket")
    upload = f"/upload{BUCKET}/o?uploadType=media&name=a"
    for method, path in (("GET", BUCKET), ("GET", f"{BUCKET}/o"), ("POST", upload)):
        reply = service.call(method, path, b"x" if method == "POST" else None)
        assert (reply.status, reply.error["errors"][0]["reason"]) == (404, "notFound")
    assert list(service.folder.iterdir()) == [service.folder / ".uploads"]
    assert (
        service.call("POST", "/storage/v1/b?project=my-project", {"name": "my-bucket"}).status
        == 200
    )
    assert service.call("POST", upload, b"x").status == 200
    assert service.call("GET", "/storage/v1/b/other").status == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", RESOURCE),
        ("GET", f"{RESOURCE}:getIamPolicy"),
        ("POST", f"{REPOSITORY}:getIamPolicy"),
        ("DELETE", REPOSITORY),
        ("GET", "/v3/projects"),
        ("GET", f"{PROJECT}/services"),
        ("GET", "/v1/services"),
        ("GET", f"{METRICS.replace('v1beta1', 'v1')}"),
    ],
)
def test_what_is_not_answered_is_no_method(service, method, path):
    assert "Method not found" in service.call(method, path).error["message"]
