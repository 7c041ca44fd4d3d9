"""Persistent resources of the emulator; that jobs run on them is in tests/cli/test_machines.py."""

from __future__ import annotations

import pytest

from .jobs import custom_job, pool

MACHINE = {"machineType": "n1-standard-4"}
POOL = {"machineSpec": MACHINE, "replicaCount": "2"}


def path(service, rest=""):
    return service.jobs("persistentResources") + rest


def create(service, name="warm", pools=(POOL,)):
    body = {"resourcePools": list(pools)}
    return service.call("POST", path(service, f"?persistentResourceId={name}"), body).json()


def test_one_comes_up_by_an_operation(service):
    operation = create(service)
    assert "done" not in operation  # the emulator of this test is slow
    assert service.call("GET", f"/v1/{operation['name']}").json() == operation
    [listed] = service.call("GET", path(service)).json()["persistentResources"]
    assert (listed["state"], listed["resourcePools"]) == ("PROVISIONING", [POOL])
    assert service.call("GET", path(service, "/warm")).json() == listed
    assert create(service)["error"]["code"] == 409
    assert service.call("DELETE", path(service, "/warm")).json()["done"]
    assert service.error("GET", path(service, "/warm"))[0] == 404


@pytest.mark.parametrize(
    ("pools", "message"),
    [
        ((), "resource_pools: A resource pool is required."),
        (({"machineSpec": MACHINE},), "resource_pools[0].replica_count: It must be above 0."),
        (({**POOL, "machineSpec": {"machineType": "n1"}},), 'Machine type "n1" is not supported'),
        (({**POOL, "size": 1},), 'no field named "size"'),
    ],
)
def test_an_invalid_one_is_refused(service, pools, message):
    error = create(service, pools=pools)["error"]
    assert error["code"] == 400
    assert message in error["message"]


def test_a_job_needs_one_with_free_machines(service):
    create(service)
    job = custom_job(pool("train"), persistentResourceId="cold")
    code, message = service.error("POST", service.jobs(), job)
    assert (code, "cold does not exist" in message) == (404, True)
    job["jobSpec"]["persistentResourceId"] = "warm"
    for used in ("1", "2"):
        assert "error" not in service.call("POST", service.jobs(), job).json()
        [machines] = service.call("GET", path(service, "/warm")).json()["resourcePools"]
        assert machines["usedReplicaCount"] == used
    code, message = service.error("POST", service.jobs(), job)
    assert (code, message) == (400, "worker_pool_specs: warm has 0 free n1-standard-4, not 1.")
