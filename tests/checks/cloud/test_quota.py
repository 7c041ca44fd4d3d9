"""Quotas: what a job needs, what active jobs use, and the limits."""

from __future__ import annotations

import pytest
from fake_google import Refused

from distlaunch.checks.cloud.quota import PREFIX, demand, limit
from distlaunch.job import machine_catalogue
from distlaunch.job.model import Cluster, Machine, Pool, RangeParameter, Scheduling, Tuning
from distlaunch.job.vertex.view import PoolRequest

KNOWN = machine_catalogue.load(None)
T4 = PoolRequest("chief", 1, "n1-standard-8", "NVIDIA_TESLA_T4", 2)
A100 = PoolRequest("chief", 1, "a2-highgpu-1g", "NVIDIA_TESLA_A100", 1)


def needed(*pools, strategy="STANDARD"):
    amounts = demand(pools, KNOWN, strategy)
    return {metric.removeprefix(PREFIX): amount for metric, amount in amounts.items()}


@pytest.mark.parametrize(
    ("pool", "amounts"),
    [
        (T4, {"nvidia_t4_gpus": 2, "cpus": 8}),
        (A100, {"nvidia_a100_gpus": 1, "a2_cpus": 12}),
        (PoolRequest("chief", 2, "e2-standard-4"), {"cpus": 8}),
        (PoolRequest("chief", 1, "c2-standard-30"), {"c2_cpus": 30}),
        (
            PoolRequest("chief", 1, "a3-megagpu-8g", "NVIDIA_H100_MEGA_80GB", 8),
            {"nvidia_h100_mega_gpus": 8, "a3_cpus": 208},
        ),
        (PoolRequest("chief", 1, "cloud-tpu", "TPU_V3", 8), {"tpu_v3": 8}),
        (PoolRequest("chief", 1, "cloud-tpu", "TPU_V3", 32), {"tpu_v3_pod": 32}),
        (PoolRequest("chief", 1, "ct5lp-hightpu-4t", topology="4x4"), {"tpu_v5e": 16}),
        (PoolRequest("chief", 1, "n9-standard-8"), {}),
        (PoolRequest("chief", 1, "n9-standard-8", "NVIDIA_L4", 1), {"nvidia_l4_gpus": 1}),
    ],
)
def test_a_pool_needs_accelerators_and_cpus(pool, amounts):
    assert needed(pool) == amounts
    preemptible = {f"preemptible_{name}": amount for name, amount in amounts.items()}
    assert needed(pool, strategy="SPOT") == preemptible


def test_every_machine_needs_a_quota():
    for name, kind in KNOWN.machines.items():
        accelerator, counts = next(iter(kind.accelerators.items()), (None, (0,)))
        topology = next(iter(kind.topologies), None)
        assert needed(PoolRequest("chief", 1, name, accelerator, counts[0], topology)), name


def test_an_inferred_quota_that_google_does_not_have_is_no_problem(check):
    a100 = Cluster(Pool(Machine("a2-highgpu-1g", "NVIDIA_TESLA_A100", 1)))
    missing = {"_cpus": Refused(404)}
    for strategy in ("SPOT", "FLEX_START"):
        fields = {"cluster": a100, "scheduling": Scheduling(strategy)}
        assert check(fields, answers=missing) == []
    for fields in ({"cluster": a100}, {"scheduling": Scheduling("SPOT")}):
        [problem] = check(fields, answers=missing)
        assert problem.code == "unanswered"


def bucket(limit=None, **dimensions):
    entry = {"dimensions": dimensions} if dimensions else {}
    return entry if limit is None else {**entry, "effectiveLimit": limit}


@pytest.mark.parametrize(
    ("buckets", "allowed"),
    [
        ([bucket("7")], 7),
        ([bucket("7"), bucket("2", region="us-central1")], 2),
        ([bucket("7"), bucket("2", region="us-east1")], 7),
        ([bucket("-1")], -1),
        ([bucket("7"), bucket(region="us-central1")], None),
        ([bucket("2", zone="us-central1-a", region="us-central1")], None),
        ([], None),
    ],
)
def test_the_limit_of_a_region(buckets, allowed):
    assert limit({"consumerQuotaLimits": [{"quotaBuckets": buckets}]}, "us-central1") == allowed


def test_an_unknown_limit_is_a_warning(check):
    no_limit = {"consumerQuotaLimits": [{"quotaBuckets": [{}]}]}
    cpus, gpus = check(answers={"_cpus": no_limit, "_gpus": Refused(404)})
    assert (cpus.code, gpus.code) == ("unanswered", "unanswered")
    assert "Google lists no limit for it, which often means 0, and the job needs 32" in cpus.what
    assert "Google has no quota of this name" in gpus.what


def test_limits_are_checked_without_the_list_of_jobs(check):
    low, unknown = check(answers={"/customJobs": Refused(403)}, limits={"cpus": 10})
    assert (low.code, low.where) == ("quota-too-low", f"quota {PREFIX}cpus")
    assert low.what == "the job needs 32, the limit in us-central1 is 10"
    assert (unknown.code, unknown.where) == ("unanswered", "quotas that jobs in us-central1 use")


CPU_POOL = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": "1"}
THREE = {"workerPoolSpecs": [CPU_POOL, {**CPU_POOL, "replicaCount": "2"}]}
PERSISTENT = {**THREE, "persistentResourceId": "mine"}
LIMIT = "the limit in us-central1 is 40, and active jobs use"
LIMITS = {"cpus": 40, "nvidia_t4_gpus": 4, "preemptible_cpus": 40}
SMALL = Cluster(Pool(Machine("n1-standard-4")))
TUNING = Tuning("accuracy", "maximize", {"rate": RangeParameter(0.1, 1.0)}, 4, 2)
JOB = "projects/1/locations/us-central1/customJobs/"
CUSTOM = {"name": f"{JOB}1", "jobSpec": THREE}
TUNED = {
    "name": "projects/1/locations/us-central1/hyperparameterTuningJobs/1",
    "trialJobSpec": THREE,
    "parallelTrialCount": 2,
    "trials": [{"customJob": f"{JOB}2"}, {"customJob": f"{JOB}3"}],
}


@pytest.mark.parametrize(
    ("fields", "custom", "tuned", "message"),
    [
        ({}, [], [], None),
        ({}, [CUSTOM], [], f"the job needs 32, {LIMIT} 12"),
        ({}, [CUSTOM | {"jobSpec": PERSISTENT}], [], None),
        ({"scheduling": Scheduling("SPOT")}, [CUSTOM], [], None),
        ({"persistent_resource": "mine"}, [CUSTOM], [], None),
        (
            {"cluster": SMALL, "tuning": TUNING},
            [CUSTOM, CUSTOM | {"name": f"{JOB}2"}, CUSTOM | {"name": f"{JOB}3"}],
            [TUNED],
            f"the job needs 8 (2 trials at once), {LIMIT} 36",
        ),
    ],
    ids=["none", "one", "on a persistent resource", "of another quota", "persistent", "tuned"],
)
def test_the_use_of_active_jobs_is_counted(fields, custom, tuned, message, check):
    jobs = {"customJobs": custom, "hyperparameterTuningJobs": tuned}
    found = check(fields, limits=LIMITS, jobs=jobs)
    problems = [problem for problem in found if problem.code != "persistent-resource-missing"]
    assert [problem.what for problem in problems] == ([message] if message else [])
    for problem in problems:
        assert (problem.code, problem.where) == ("quota-in-use", f"quota {PREFIX}cpus")
        assert "distlaunch list" in problem.remedy
