"""The job service as Google's own client meets it, and on the wire."""

from __future__ import annotations

from itertools import chain
from typing import Any
from urllib.parse import quote

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials

from distlaunch.emulator.store import project_number

PARENT = "projects/my-project/locations/us-central1"

V1 = f"/v1/{PARENT}"
STATES = "cloud.google.aiplatform.v1"


@pytest.fixture
def client(service):
    from google.cloud.aiplatform_v1 import JobServiceClient
    from google.cloud.aiplatform_v1.services.job_service.transports import JobServiceRestTransport

    transport = JobServiceRestTransport(host=service.url, credentials=AnonymousCredentials())
    with JobServiceClient(transport=transport) as client:
        yield client


def sent(job: dict[str, Any]) -> dict[str, Any]:
    """Return a job as the client takes it."""
    from google.cloud.aiplatform_v1 import types
    from google.protobuf import json_format

    kind = types.HyperparameterTuningJob if "studySpec" in job else types.CustomJob
    return kind(json_format.ParseDict(job, kind.pb()()))


def test_google_s_client_makes_tells_of_cancels_and_deletes_a_job(client, custom_job):
    from google.cloud.aiplatform_v1 import JobState

    made = client.create_custom_job(parent=PARENT, custom_job=sent(custom_job))
    number = project_number("my-project")
    assert made.name.startswith(f"projects/{number}/locations/us-central1/customJobs/")
    assert (made.display_name, made.state) == ("digits", JobState.JOB_STATE_QUEUED)
    assert made.job_spec == sent(custom_job).job_spec
    assert made.create_time.timestamp() > 1.7e9
    assert client.get_custom_job(name=made.name) == made

    with pytest.raises(exceptions.BadRequest, match="cannot be deleted; cancel it first"):
        client.delete_custom_job(name=made.name)
    client.cancel_custom_job(name=made.name)
    assert client.get_custom_job(name=made.name).state == JobState.JOB_STATE_CANCELLED
    with pytest.raises(exceptions.BadRequest, match="in state JOB_STATE_CANCELLED and cannot be"):
        client.cancel_custom_job(name=made.name)
    operation = client.delete_custom_job(name=made.name)
    assert operation.result(timeout=5) is not None
    with pytest.raises(exceptions.NotFound, match="does not exist"):
        client.get_custom_job(name=made.name)


def test_google_s_client_makes_and_lists_tuning_jobs(client, tuning_job):
    made = client.create_hyperparameter_tuning_job(
        parent=PARENT, hyperparameter_tuning_job=sent(tuning_job)
    )
    assert made.study_spec == sent(tuning_job).study_spec
    assert client.get_hyperparameter_tuning_job(name=made.name) == made
    assert list(client.list_hyperparameter_tuning_jobs(parent=PARENT)) == [made]
    assert list(client.list_custom_jobs(parent=PARENT)) == []
    client.cancel_hyperparameter_tuning_job(name=made.name)
    client.delete_hyperparameter_tuning_job(name=made.name).result(timeout=5)


def test_google_s_client_pages_through_a_list_the_newest_first(client, custom_job):
    names = [
        client.create_custom_job(parent=PARENT, custom_job=sent(custom_job)).name for _ in range(7)
    ]
    pager = client.list_custom_jobs(request={"parent": PARENT, "page_size": 3})
    pages = [[job.name for job in page.custom_jobs] for page in pager.pages]
    assert list(map(len, pages)) == [3, 3, 1]
    assert list(chain.from_iterable(pages)) == names[::-1]


def test_a_page_begins_where_the_one_before_ended_whatever_has_come_or_gone(service, custom_job):
    names = [service.create(custom_job).json["name"] for _ in range(4)]
    first = service.call("GET", f"{V1}/customJobs?pageSize=2").json
    service.create(custom_job)
    service.store.delete(names[2])
    second = service.call("GET", f"{V1}/customJobs?pageToken={first['nextPageToken']}").json
    assert [job["name"] for job in first["customJobs"]] == [names[3], names[2]]
    assert [job["name"] for job in second["customJobs"]] == [names[1], names[0]]
    assert "nextPageToken" not in second


def test_an_empty_list_is_an_empty_object(service):
    assert service.call("GET", f"{V1}/customJobs").json == {}


@pytest.fixture
def three(service, custom_job):
    """Jobs a, b and c, in three states and with labels."""
    for name, state, labels in (
        ("a_1", "SUCCEEDED", {"team": "x"}),
        ("b", "FAILED", {"team": "y", "launch-id": "digits-1"}),
        ("a_2", "RUNNING", {}),
    ):
        made = service.create(custom_job | {"displayName": name, "labels": labels}).json
        service.store.update(made["name"], state=f"JOB_STATE_{state}")
    return service


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('display_name="b"', "b"),
        ('display_name!="b"', "a_2 a_1"),
        ('display_name:"a_*"', "a_2 a_1"),
        ('display_name:"a"', ""),
        ('NOT display_name="b"', "a_2 a_1"),
        ('state="JOB_STATE_FAILED"', "b"),
        ('state!="JOB_STATE_FAILED" OR display_name="b"', "a_2 b a_1"),
        ('state="JOB_STATE_SUCCEEDED" AND display_name:"a_*"', "a_1"),
        ("labels.team=y", "b"),
        ("labels.team:*", "b a_1"),
        ("NOT labels.team:*", "a_2"),
        ("labels.launch-id=digits-1", "b"),
        ('labels."launch-id"="digits-1"', "b"),
        ('create_time>"2021-05-18T00:00:00Z"', "a_2 b a_1"),
        ('create_time<"2021-05-18T00:00:00Z"', ""),
    ],
)
def test_a_list_can_be_filtered_as_vertex_ai_documents_it(three, text, names):
    found = three.call("GET", f"{V1}/customJobs?filter={quote(text)}").json.get("customJobs", [])
    assert [job["displayName"] for job in found] == names.split()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name=x", "'name' is no field to filter by"),
        ("displayName=x", "'displayName' is no field to filter by"),
        ("labels=x", "'labels' is no field to filter by"),
        ("digits", "'digits' is no field to filter by"),
        ("state:FAILED", "':' is not supported for 'state'"),
        ('state="FAILED"', "'FAILED' is no state of a job"),
        ('create_time>"yesterday"', "'yesterday' is not a time in RFC 3339"),
        ("(state", "expected ')', got ''"),
    ],
)
def test_another_filter_is_refused(service, text, said):
    reply = service.call("GET", f"{V1}/customJobs?filter={quote(text)}")
    assert (reply.status, reply.error["status"]) == (400, "INVALID_ARGUMENT")
    assert reply.error["message"].startswith(f"Invalid filter {text!r}: {said}")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            "orderBy=create_time",
            'Invalid JSON payload received. Unknown name "orderBy": Cannot bind query parameter. '
            "Field 'orderBy' could not be found in request message.",
        ),
        ("pageSize=-1", "The page size must not be negative."),
        (
            "pageSize=many",
            "Invalid JSON payload received. Invalid value at 'page_size' (TYPE_INT32), \"many\"",
        ),
        ("pageToken=x", "The page token is invalid."),
        ("pageToken=WzFd", "The page token is invalid."),
        (
            "pageToken=WyJhIiwgImIiXQ==",
            "The page token is not of this request: its filter is another.",
        ),
    ],
)
def test_options_of_a_list_that_cannot_be(service, options, said):
    reply = service.call("GET", f"{V1}/customJobs?{options}")
    assert (reply.status, reply.error["message"]) == (400, said)


def test_a_read_mask_names_the_fields_that_are_told(service, custom_job):
    made = service.create(custom_job).json
    (job,) = service.call("GET", f"{V1}/customJobs?readMask=name,create_time").json["customJobs"]
    assert job == {"name": made["name"], "createTime": made["createTime"]}


def test_enums_are_names_or_numbers_as_they_are_asked_for(service, custom_job):
    custom_job["jobSpec"]["scheduling"] = {"strategy": "SPOT"}
    path = f"/v1/{service.create(custom_job).json['name']}"
    named = service.call("GET", path).json
    assert (named["state"], named["jobSpec"]["scheduling"]) == (
        "JOB_STATE_QUEUED",
        {"strategy": "SPOT"},
    )
    assert named["jobSpec"]["workerPoolSpecs"][1]["replicaCount"] == "2"
    numbered = service.call("GET", f"{path}?$alt=json;enum-encoding=int").json
    assert (numbered["state"], numbered["jobSpec"]["scheduling"]) == (1, {"strategy": 4})


def test_v1beta1_is_answered_alike(service, custom_job):
    made = service.call("POST", f"/v1beta1/{PARENT}/customJobs", custom_job).json
    told = service.call("GET", f"/v1beta1/{made['name']}").json
    assert told == made == service.call("GET", f"/v1/{made['name']}").json


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        (
            "GET",
            f"{V1}/customJobs/5",
            404,
            f'The CustomJob "{PARENT}/customJobs/5" does not exist.',
        ),
        ("POST", f"{V1}/customJobs/5:cancel", 404, None),
        ("DELETE", f"{V1}/customJobs/5", 404, None),
        ("GET", f"{V1}/operations/5", 404, f"Operation {PARENT}/operations/5 is not found."),
        ("PATCH", f"{V1}/customJobs/5", 404, f"Method not found: PATCH {V1}/customJobs/5"),
        ("POST", f"{V1}/customJobs/5:stop", 404, None),
        ("GET", "/v1/projects/p/locations/us-central1/pipelineJobs", 404, None),
        (
            "GET",
            "/v1/projects/p/locations/us-centrl1/customJobs",
            400,
            "Location us-centrl1 is not supported by this service.",
        ),
        ("POST", "/v1/projects/p/locations/mars/customJobs", 400, None),
        ("GET", "/v1/projects/p/locations/mars/customJobs/5", 400, None),
    ],
)
def test_what_there_is_not(service, method, path, status, said):
    reply = service.call(method, path)
    assert reply.status == status
    assert said in (None, reply.error["message"])
    assert reply.headers["Content-Type"] == "application/json; charset=UTF-8"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "Invalid JSON payload received. Unexpected token."),
        (b"[]", "Invalid JSON payload received. Root element must be a message."),
        (b'{"displayName": NaN}', "Invalid JSON payload received. Unexpected token."),
        (b"\xff", "Invalid JSON payload received. Unexpected token."),
        (b"[" * 100_000, "Invalid JSON payload received. Unexpected token."),
        (b"", "List of found errors:\t1.Field: display_name; Message: Display name is required."),
    ],
)
def test_content_that_is_no_job(service, body, said):
    reply = service.call("POST", f"{V1}/customJobs", body, {"Content-Type": "application/json"})
    assert reply.status == 400
    assert reply.error["message"].startswith(said)
    assert service.store.list("my-project", "us-central1", "customJobs") == []


def test_a_job_that_is_refused_is_not_there(service, custom_job):
    custom_job["jobSpec"]["workerPoolSpecs"][0]["replicaCount"] = 2
    reply = service.create(custom_job)
    assert (reply.status, reply.error["status"]) == (400, "INVALID_ARGUMENT")
    assert service.call("GET", f"{V1}/customJobs").json == {}


@pytest.mark.parametrize(
    ("machine", "strategy", "metrics"),
    [
        ({"machineType": "n1-standard-8"}, "STANDARD", "cpus"),
        ({"machineType": "c2-standard-8"}, "SPOT", "preemptible_c2_cpus"),
        (
            {
                "machineType": "n1-standard-8",
                "acceleratorType": "NVIDIA_TESLA_T4",
                "acceleratorCount": 1,
            },
            "STANDARD",
            "nvidia_t4_gpus",
        ),
        (
            {
                "machineType": "a3-highgpu-8g",
                "acceleratorType": "NVIDIA_H100_80GB",
                "acceleratorCount": 8,
            },
            "FLEX_START",
            "preemptible_nvidia_h100_gpus",
        ),
    ],
)
def test_a_quota_that_is_exceeded(serve, custom_job, machine, strategy, metrics):
    service = serve("quota#1")
    spec = custom_job["jobSpec"]
    spec["scheduling"] = {"strategy": strategy}
    for pool in spec["workerPoolSpecs"]:
        pool["machineSpec"] = machine
    reply = service.create(custom_job)
    assert reply.error == {
        "code": 429,
        "message": "The following quota metrics exceed quota limits: "
        f"aiplatform.googleapis.com/custom_model_training_{metrics}",
        "status": "RESOURCE_EXHAUSTED",
    }
    assert service.create(custom_job).status == 200
