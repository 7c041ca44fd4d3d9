"""The job service: create, get, list, cancel and delete, and which jobs it refuses."""

from __future__ import annotations

import copy
import time

import pytest

from .jobs import custom_job, pool, tuning_job

JOB = custom_job(pool("train"), pool("train", count=2))
TUNING_JOB = tuning_job(
    {
        "parameterId": "rate",
        "doubleValueSpec": {"minValue": 0.001, "maxValue": 0.1},
        "scaleType": "UNIT_LOG_SCALE",
    },
    {"parameterId": "units", "discreteValueSpec": {"values": [16, 32]}},
    trials=4,
    pools=[pool()],
)


def set_field(job, path, value):
    """Return a copy of a job in which a field has another value, None to remove it."""
    changed = target = copy.deepcopy(job)
    *parents, name = path.split(".")
    for part in parents:
        target = target[int(part)] if part.isdecimal() else target.setdefault(part, {})
    key = int(name) if name.isdecimal() else name
    target[key] = value
    if value is None:
        del target[key]
    return changed


def test_a_job_is_created_read_cancelled_and_deleted(service):
    created = service.call("POST", service.jobs(), JOB | {"state": "JOB_STATE_FAILED"}).json()
    assert created["state"] == "JOB_STATE_QUEUED"
    assert created["createTime"] == created["updateTime"]
    assert created["jobSpec"] == JOB["jobSpec"]
    path = f"/v1/{created['name']}"
    assert path.split("/")[3].isdecimal()
    by_project_id = f"{service.jobs(version='v1beta1')}/{path.rpartition('/')[2]}"
    for same in (path, by_project_id):
        assert service.call("GET", same).json()["name"] == created["name"]

    assert service.error("DELETE", path)[0] == 400
    assert service.call("POST", f"{path}:cancel").json() == {}
    while "endTime" not in service.call("GET", path).json():
        time.sleep(0.01)
    code, message = service.error("POST", f"{path}:cancel")
    assert (code, "JOB_STATE_CANCELLED and cannot be cancelled" in message) == (400, True)
    assert service.call("DELETE", path).json()["done"] is True
    for method, gone in (("GET", path), ("DELETE", path), ("POST", f"{path}:cancel")):
        assert service.error(method, gone)[0] == 404


def test_lists_have_pages_filters_and_the_newest_job_first(service):
    for name in "abcdef":
        service.call("POST", service.jobs(), JOB | {"displayName": name})
    service.call("POST", service.jobs().replace("us-central1", "us-east1"), JOB)
    service.call("POST", service.jobs("hyperparameterTuningJobs"), TUNING_JOB)
    params = {"pageSize": 3, "filter": 'display_name!="c"'}
    first = service.call("GET", service.jobs(), params=params).json()
    params["pageToken"] = first["nextPageToken"]
    second = service.call("GET", service.jobs(), params=params).json()
    jobs = first["customJobs"] + second["customJobs"]
    assert [job["displayName"] for job in jobs] == list("fedba")
    assert len({job["createTime"] for job in jobs}) == 5
    assert "nextPageToken" not in second


@pytest.mark.parametrize("params", [{"filter": "owner=me"}, {"pageToken": "x"}, {"pageSize": -1}])
def test_other_lists_are_refused(params, service):
    assert service.error("GET", service.jobs(), params=params)[0] == 400


POOL = "jobSpec.workerPoolSpecs.0"
T4 = {"machineType": "n1-standard-8", "acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 1}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("displayname", "a", 'no field named "displayname"'),
        ("displayName", None, "display_name: Display name is required."),
        ("jobSpec", None, "worker_pool_specs[0]: The first worker pool is required."),
        (f"{POOL}.replicaCount", 2, "replica_count: The replica count must be 1."),
        ("jobSpec.workerPoolSpecs.1.replicaCount", 0, "must be greater than 0."),
        (f"{POOL}.containerSpec", None, "An image URI is required."),
        (f"{POOL}.machineSpec", None, 'Machine type "" is not supported'),
        (f"{POOL}.machineSpec.machineType", "n1-standard-2", '"n1-standard-2" is not supported'),
        (f"{POOL}.machineSpec", T4 | {"acceleratorCount": 3}, "3 NVIDIA_TESLA_T4 are not"),
        (f"{POOL}.machineSpec", T4 | {"machineType": "e2-standard-8"}, "on machine type e2-"),
        (f"{POOL}.machineSpec.machineType", "a2-highgpu-1g", "are not supported"),
        (f"{POOL}.machineSpec.tpuTopology", "2x2", "tpu_topology: "),
        ("jobSpec.scheduling", {"timeout": "604801s", "strategy": "FLEX_START"}, "(7 days)."),
    ],
)
def test_a_job_that_cannot_run_is_refused(path, value, message, service):
    code, text = service.error("POST", service.jobs(), set_field(JOB, path, value))
    assert (code, message in text) == (400, True), text
    assert service.call("GET", service.jobs()).json() == {}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("jobSpec.scheduling.timeout", "700000s"),  # above 7 days; `check` only warns
        (f"{POOL}.machineSpec", T4),
        (f"{POOL}.machineSpec", {"machineType": "ct5lp-hightpu-4t", "tpuTopology": "2x2"}),
    ],
)
def test_a_job_that_can_run_is_accepted(path, value, service):
    response = service.call("POST", service.jobs(), set_field(JOB, path, value))
    assert response.status_code == 200, response.text


def test_an_unknown_region_is_refused(service):
    path = service.jobs().replace("us-central1", "us-central9")
    assert service.error("POST", path, JOB)[0] == 400


RATE = "studySpec.parameters.0"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("maxTrialCount", 0, "Trial counts must be greater than 0."),
        ("studySpec", None, "At least one metric is required."),
        ("trialJobSpec", None, "trial_job_spec.worker_pool_specs[0]"),
        (f"{RATE}.doubleValueSpec", None, "study_spec.parameters[0]: A value spec"),
        (f"{RATE}.doubleValueSpec.minValue", 0, "On a log scale all values must be greater than 0"),
        (f"{RATE}.doubleValueSpec.maxValue", 0, "increasing order"),
        ("studySpec.parameters.1.discreteValueSpec", {}, "At least one value is required."),
        (f"{RATE}.conditionalParameterSpecs", [{}], "not support conditional_parameter_specs."),
    ],
)
def test_a_study_that_cannot_run_is_refused(path, value, message, service):
    job = set_field(TUNING_JOB, path, value)
    code, text = service.error("POST", service.jobs("hyperparameterTuningJobs"), job)
    assert (code, message in text) == (400, True), text
