"""The job service: create, get, list, cancel and delete, and what it refuses."""

from __future__ import annotations

import copy

import pytest

from distlaunch.job import machine_catalogue

from .conftest import JOBS, TUNING_JOBS

INT = {"$alt": "json;enum-encoding=int"}


def set_field(job, path, value):
    """Return a copy of a job in which a field has another value, None to remove it."""
    changed = copy.deepcopy(job)
    *parents, name = [int(part) if part.isdecimal() else part for part in path.split(".")]
    target = changed
    for part in parents:
        target = target[part] if isinstance(part, int) else target.setdefault(part, {})
    if value is None:
        del target[name]
    else:
        target[name] = value
    return changed


def test_a_job_is_created_read_cancelled_and_deleted(service, custom_job):
    created = service.call("POST", JOBS, custom_job | {"state": "JOB_STATE_FAILED"}).json()
    assert created["state"] == "JOB_STATE_QUEUED"
    assert created["createTime"] == created["updateTime"]
    assert created["jobSpec"] == custom_job["jobSpec"]
    path = f"/v1/{created['name']}"
    assert service.call("GET", path).json() == created
    by_id = path.replace(created["name"].split("/")[1], "my-project").replace("v1", "v1beta1")
    assert service.call("GET", by_id).json() == created
    assert service.call("GET", path, params=INT).json()["state"] == 1

    assert service.error("DELETE", path)[0] == 400
    assert service.call("POST", f"{path}:cancel").json() == {}
    code, message = service.error("POST", f"{path}:cancel")
    assert (code, "JOB_STATE_CANCELLED and cannot be cancelled" in message) == (400, True)
    assert service.call("DELETE", path).json()["done"] is True
    for method, gone in (("GET", path), ("DELETE", path), ("POST", f"{path}:cancel")):
        assert service.error(method, gone)[0] == 404


def test_lists_have_pages_and_the_newest_job_first(service, custom_job):
    for name in "abc":
        service.call("POST", JOBS, custom_job | {"displayName": name})
    service.call("POST", JOBS.replace("my-project", "other"), custom_job)
    first = service.call("GET", JOBS, params={"pageSize": 2}).json()
    params = {"pageSize": 2, "pageToken": first["nextPageToken"]}
    second = service.call("GET", JOBS, params=params).json()
    jobs = first["customJobs"] + second["customJobs"]
    assert [job["displayName"] for job in jobs] == ["c", "b", "a"]
    assert "nextPageToken" not in second


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('display_name="a"', "a"),
        ("labels.team=blue", "a"),
        ('labels.team="blue" AND display_name="b"', ""),
        ('display_name="a" OR display_name="b"', "ba"),
        ('(state="JOB_STATE_PENDING" OR state="JOB_STATE_QUEUED") AND labels.team:*', "a"),
        ("labels.team!=blue", "b"),
        ('create_time>="2026-01-01T00:00:00Z"', "ba"),
        ('create_time<"2026-01-01"', ""),
    ],
)
def test_jobs_are_filtered(text, names, service, custom_job):
    service.call("POST", JOBS, custom_job | {"displayName": "a", "labels": {"team": "blue"}})
    service.call("POST", JOBS, custom_job | {"displayName": "b"})
    jobs = service.call("GET", JOBS, params={"filter": text}).json().get("customJobs", [])
    assert "".join(job["displayName"] for job in jobs) == names


@pytest.mark.parametrize(
    "text",
    ["owner=me", "labels=a", "NOT state=a", "state", 'state="a', "state=a)", "create_time>now"],
)
def test_other_filters_are_refused(text, service):
    code, message = service.error("GET", JOBS, params={"filter": text})
    assert (code, message.startswith("Unparseable filter: ")) == (400, True)


POOL = "jobSpec.workerPoolSpecs.0"
T4 = {"machineType": "n1-standard-8", "acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 1}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("displayname", "a", 'no field named "displayname"'),
        ("displayName", 7, "Failed to parse displayName"),
        ("jobSpec.scheduling.strategy", "FAST", "Invalid enum value FAST"),
        ("displayName", None, "display_name: Display name is required."),
        ("jobSpec", None, "worker_pool_specs[0]: The first worker pool is required."),
        (POOL, {}, "job_spec.worker_pool_specs[0]: The first worker pool is required."),
        (f"{POOL}.replicaCount", 2, "replica_count: The replica count must be 1."),
        ("jobSpec.workerPoolSpecs.1.replicaCount", 0, "must be greater than 0."),
        (f"{POOL}.containerSpec", None, "An image URI is required."),
        (f"{POOL}.machineSpec", None, 'Machine type "" is not supported'),
        (f"{POOL}.machineSpec.machineType", "n1-standard-2", '"n1-standard-2" is not supported'),
        (f"{POOL}.machineSpec", T4 | {"acceleratorCount": 3}, "3 NVIDIA_TESLA_T4 are not"),
        (f"{POOL}.machineSpec", T4 | {"machineType": "e2-standard-8"}, "on machine type e2-"),
        (f"{POOL}.machineSpec.machineType", "a2-highgpu-1g", "are not supported"),
        (f"{POOL}.machineSpec.tpuTopology", "2x2", "tpu_topology: "),
        ("jobSpec.scheduling.timeout", "-1s", "The timeout must be 0s to 604800s"),
        (
            "jobSpec.scheduling",
            {"timeout": "604801s", "strategy": "FLEX_START"},
            "The timeout must be 0s to 604800s (7 days).",
        ),
    ],
)
def test_a_job_that_cannot_run_is_refused(path, value, message, service, custom_job):
    code, text = service.error("POST", JOBS, set_field(custom_job, path, value))
    assert (code, message in text) == (400, True), text
    assert service.call("GET", JOBS).json() == {}


def test_a_timeout_above_7_days_is_only_warned_of_by_check_and_accepted_here(service, custom_job):
    job = set_field(custom_job, "jobSpec.scheduling.timeout", "700000s")
    assert service.call("POST", JOBS, job).status_code == 200


def test_every_machine_of_the_catalogue_is_accepted(service, custom_job):
    for name, kind in machine_catalogue.bundled().machines.items():
        spec = {"machineType": name}
        if kind.topologies:
            spec["tpuTopology"] = kind.topologies[0]
        elif kind.needs_accelerator:
            accelerator, counts = next(iter(kind.accelerators.items()))
            spec |= {"acceleratorType": accelerator, "acceleratorCount": counts[0]}
        job = set_field(custom_job, f"{POOL}.machineSpec", spec)
        response = service.call("POST", JOBS, job)
        assert response.status_code == 200, response.text


def test_an_unknown_region_is_refused(service, custom_job):
    path = JOBS.replace("us-central1", "us-central9")
    for method in ("GET", "POST"):
        assert service.error(method, path, custom_job)[0] == 400


def test_a_tuning_job_is_created_and_listed(service, tuning_job):
    created = service.call("POST", TUNING_JOBS, tuning_job).json()
    assert created["studySpec"]["parameters"][0]["scaleType"] == "UNIT_LOG_SCALE"
    listed = service.call("GET", TUNING_JOBS, params=INT).json()["hyperparameterTuningJobs"]
    assert listed[0]["studySpec"]["parameters"][0]["scaleType"] == 2


RATE = "studySpec.parameters.0"
CONDITIONAL = {
    "parameterSpec": {
        "parameterId": "decay",
        "doubleValueSpec": {"minValue": 0, "maxValue": 1},
        "scaleType": "UNIT_LOG_SCALE",
    },
    "parentDiscreteValues": {"values": [16]},
}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("maxTrialCount", 0, "Trial counts must be greater than 0."),
        ("studySpec", None, "At least one metric is required."),
        ("trialJobSpec", None, "trial_job_spec.worker_pool_specs[0]"),
        (f"{RATE}.doubleValueSpec", None, "study_spec.parameters[0]: A value spec"),
        (f"{RATE}.doubleValueSpec.minValue", 0, "On a log scale all values must be greater than 0"),
        (f"{RATE}.doubleValueSpec.minValue", "NaN", "increasing order"),
        (f"{RATE}.doubleValueSpec.maxValue", 0, "increasing order"),
        ("studySpec.parameters.1.discreteValueSpec", {}, "At least one value is required."),
        (
            "studySpec.parameters.1.conditionalParameterSpecs",
            [CONDITIONAL],
            "The emulator does not support conditional_parameter_specs.",
        ),
    ],
)
def test_a_study_that_cannot_run_is_refused(path, value, message, service, tuning_job):
    job = set_field(tuning_job, path, value)
    code, text = service.error("POST", TUNING_JOBS, job)
    assert (code, message in text) == (400, True), text
