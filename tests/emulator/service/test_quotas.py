"""What is allowed of each quota, and that a job gets no more."""

from __future__ import annotations

import copy
from urllib.parse import quote

import pytest

from distlaunch.emulator.service.quotas import METRICS, PREFIX

PARENT = "/v1beta1/projects/my-project/services/aiplatform.googleapis.com/consumerQuotaMetrics"
T4 = {
    "machineType": "n1-standard-8",
    "acceleratorType": "NVIDIA_TESLA_T4",
    "acceleratorCount": 2,
}


def buckets(service, metric: str) -> list[dict]:
    told = service.call("GET", f"{PARENT}/{quote(PREFIX + metric, safe='')}").json
    assert told["metric"] == PREFIX + metric
    (limit,) = told["consumerQuotaLimits"]
    return limit["quotaBuckets"]


def with_machine(job: dict, machine: dict, strategy: str = "STANDARD") -> dict:
    spec = job.get("jobSpec") or job["trialJobSpec"]
    spec["scheduling"] = {"strategy": strategy}
    for pool in spec["workerPoolSpecs"]:
        pool["machineSpec"] = machine
    return job


def test_a_thousand_of_everything_is_allowed(service):
    assert buckets(service, "preemptible_nvidia_l4_gpus") == [
        {"effectiveLimit": "1000", "defaultLimit": "1000"}
    ]


@pytest.mark.parametrize("limit", ["2", "0", "-1"])
def test_a_limit_is_told_for_each_region_behind_the_usual_one(serve, limit):
    usual, *regions = buckets(serve(f"limit:nvidia_t4_gpus={limit}"), "nvidia_t4_gpus")
    assert "dimensions" not in usual
    assert usual["effectiveLimit"] == "1000"
    assert {each["effectiveLimit"] for each in regions} == {limit}
    assert {"us-central1", "europe-west4"} <= {each["dimensions"]["region"] for each in regions}


@pytest.mark.parametrize("size", ["", "1000", "7"])
def test_pages_tell_of_each_metric_once(service, size):
    found, token, pages = [], "", 0
    while pages == 0 or token:
        told = service.call("GET", f"{PARENT}?pageSize={size or 0}&pageToken={token}").json
        found += [each["metric"] for each in told["metrics"]]
        token, pages = told.get("nextPageToken", ""), pages + 1
    assert len(found) == len(set(found))
    assert {PREFIX + each for each in METRICS} < set(found)
    assert pages > 1


@pytest.mark.parametrize("query", ["pageSize=-1", "pageSize=x", "pageToken=x", "pageToken=LTE="])
def test_pages_that_cannot_be(service, query):
    assert service.call("GET", f"{PARENT}?{query}").status == 400


def test_what_is_no_metric_is_not_found(service):
    assert service.call("GET", f"{PARENT}/aiplatform.googleapis.com%2Fnothing").status == 404
    compute = PARENT.replace("aiplatform", "compute")
    assert service.call("GET", compute).json == {"metrics": []}


@pytest.mark.parametrize(
    ("machine", "strategy", "taken"),
    [
        ({"machineType": "n1-standard-8"}, "STANDARD", {"cpus": 24}),
        ({"machineType": "e2-highmem-16"}, "SPOT", {"preemptible_cpus": 48}),
        ({"machineType": "c2-standard-60"}, "STANDARD", {"c2_cpus": 180}),
        (T4, "STANDARD", {"nvidia_t4_gpus": 6, "cpus": 24}),
        (
            {
                "machineType": "a2-megagpu-16g",
                "acceleratorType": "NVIDIA_TESLA_A100",
                "acceleratorCount": 16,
            },
            "FLEX_START",
            {"preemptible_nvidia_a100_gpus": 48, "preemptible_a2_cpus": 288},
        ),
        (
            {
                "machineType": "a3-highgpu-8g",
                "acceleratorType": "NVIDIA_H100_80GB",
                "acceleratorCount": 8,
            },
            "STANDARD",
            {"nvidia_h100_gpus": 24, "a3_cpus": 624},
        ),
    ],
)
def test_a_job_gets_what_is_left_and_no_more(serve, custom_job, machine, strategy, taken):
    job = with_machine(custom_job, machine, strategy)
    for metric, amount in taken.items():
        assert serve(f"limit:{metric}={amount}").create(job).status == 200
        assert serve(f"limit:{metric}=-1").create(job).status == 200
        refused = serve(f"limit:{metric}={amount - 1}").create(job).error
        assert refused == {
            "code": 429,
            "message": f"The following quota metrics exceed quota limits: {PREFIX}{metric}",
            "status": "RESOURCE_EXHAUSTED",
        }


@pytest.mark.parametrize(
    ("machine", "metric", "amount"),
    [
        (
            {
                "machineType": "cloud-tpu",
                "acceleratorType": "TPU_V3",
                "acceleratorCount": 8,
            },
            "tpu_v3",
            8,
        ),
        ({"machineType": "ct5lp-hightpu-4t", "tpuTopology": "2x2"}, "tpu_v5e", 4),
        ({"machineType": "ct5lp-hightpu-4t", "tpuTopology": "4x4"}, "tpu_v5e", 16),
    ],
)
def test_tpus_are_counted_by_chips(serve, custom_job, machine, metric, amount):
    job = with_machine(custom_job, machine)
    del job["jobSpec"]["workerPoolSpecs"][1:]
    assert serve(f"limit:{metric}={amount}").create(job).status == 200
    assert serve(f"limit:{metric}={amount - 1}").create(job).status == 429


def test_machines_that_are_there_already_are_not_counted_again(serve, custom_job):
    service = serve("limit:nvidia_t4_gpus=6,limit:cpus=24")
    there = copy.deepcopy(with_machine(custom_job, T4))
    there["jobSpec"]["persistentResourceId"] = "mine"
    assert service.create(there).status == 200
    assert service.create(custom_job).status == 200
    assert service.create(there).status == 200
    assert service.create(custom_job).status == 429


def test_trials_at_once_are_counted(serve, tuning_job):
    job = with_machine(tuning_job, T4)
    kind = "hyperparameterTuningJobs"
    assert serve("limit:nvidia_t4_gpus=12").create(job, kind).status == 200
    assert serve("limit:nvidia_t4_gpus=11").create(job, kind).status == 429


def test_what_others_hold_counts_until_they_end(serve, custom_job, tuning_job):
    service = serve("limit:nvidia_t4_gpus=12,limit:cpus=1000")
    first = service.create(with_machine(custom_job, T4)).json["name"]
    assert service.create(with_machine(tuning_job, T4), "hyperparameterTuningJobs").status == 429
    second = service.create(custom_job).json["name"]
    assert service.create(custom_job).status == 429
    elsewhere = "/v1/projects/my-project/locations/europe-west4/customJobs"
    assert service.call("POST", elsewhere, custom_job).status == 200
    service.store.update(second, state="JOB_STATE_FAILED")
    assert service.create(custom_job).status == 200
    service.store.update(first, state="JOB_STATE_SUCCEEDED")
    assert service.call("DELETE", f"/v1/{first}").status == 200
    assert service.create(custom_job).status == 200
