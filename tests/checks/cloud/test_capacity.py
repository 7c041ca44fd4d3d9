"""Reservations and persistent resources of a job, by Google's responses for them."""

from __future__ import annotations

import pytest
from fake_google import Refused

from distlaunch.job.model import Cluster, Machine, Pool, Tuning

FULL = "projects/demo-project/zones/us-central1-a/reservations/gpus"
T4 = {"acceleratorType": "projects/x/acceleratorTypes/nvidia-tesla-t4", "acceleratorCount": 1}
H100 = Cluster(Pool(Machine("a3-highgpu-8g", "NVIDIA_H100_80GB", 8)))
QUOTAS = {"_cpus": {}, "_gpus": {}, "/customJobs": {}}
SEARCH = Tuning("loss", "minimize", {}, trials=4, parallel_trials=2)


def reserved(machine="n1-standard-8", count=4, used=0, gpus=(T4,), **more):
    properties = {"machineType": machine, "guestAccelerators": list(gpus)}
    specific = {"count": str(count), "inUseCount": str(used), "instanceProperties": properties}
    policy = {"serviceShareType": "ALLOW_ALL"}
    return {
        "/reservations/gpus": {
            "status": "READY",
            "specificReservation": specific,
            "reservationSharingPolicy": policy,
            **more,
        }
    }


def up(count=4, used=0, state="RUNNING", **more):
    t4 = {"acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 1}
    machine = {"machineSpec": {"machineType": "n1-standard-8", **t4}}
    pool = {**machine, "replicaCount": str(count), "usedReplicaCount": str(used)}
    return {"/persistentResources/warm": {"state": state, "resourcePools": [pool], **more}}


@pytest.mark.parametrize(
    ("answers", "fields", "expected"),
    [
        (reserved(), {}, []),
        (reserved(used=1), {}, [("reservation-full", "warning")]),
        (reserved(count=7), {"tuning": SEARCH}, [("reservation-full", "error")]),
        (reserved(status="CREATING"), {}, [("reservation-full", "error")]),
        (reserved(gpus=()), {}, [("reservation-machines", "error")] * 2),
        (reserved("n1-standard-4"), {}, [("reservation-machines", "error")] * 2),
        (reserved("a3-highgpu-8g", gpus=()), {"cluster": H100}, []),  # it comes with its GPUs
        (reserved(specificReservation=None), {}, []),  # such as of TPUs
        ({"/reservations/gpus": Refused(403, "No.")}, {}, [("unanswered", "warning")]),
    ],
)
def test_a_reservation(check, answers, fields, expected):
    problems = check({"reservation": FULL, **fields}, answers=answers)
    found = [problem for problem in problems if "quota" not in problem.where]
    assert [(problem.code, problem.severity) for problem in found] == expected, found


@pytest.mark.parametrize(
    ("answers", "fields", "expected"),
    [
        (up(), {}, []),
        (up(used=1), {}, [("persistent-resource-full", "warning")]),
        (up(count=3), {}, [("persistent-resource-full", "error")]),
        (up(count=7), {"tuning": SEARCH}, [("persistent-resource-full", "error")]),
        (up(state="ERROR"), {}, [("persistent-resource-down", "error")]),
        (
            up(),
            {"network": "projects/1/global/networks/n"},
            [("persistent-resource-settings", "error")],
        ),
        (
            up(encryptionSpec={"kmsKeyName": "k"}),
            {},
            [("persistent-resource-settings", "error")],
        ),
        ({"/persistentResources/warm": Refused(403, "No.")}, {}, [("unanswered", "warning")]),
    ],
)
def test_a_persistent_resource(check, answers, fields, expected):
    job = {"persistent_resource": "warm", "service_account": None, **fields}
    problems = check(job, answers=answers, limits={"cpus": 0, "nvidia_t4_gpus": 0})
    assert [(problem.code, problem.severity) for problem in problems] == expected, problems


def test_a_missing_role_for_a_reservation_has_its_command(check):
    refusal = Refused(403, "Required 'compute.reservations.get' permission for X", "forbidden")
    [problem] = check({"reservation": FULL}, answers={"/reservations/gpus": refusal})
    assert problem.where == f"reservation {FULL}"
