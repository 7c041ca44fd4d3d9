"""The persistent resources of the emulator's store, and the jobs on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlaunch.emulator.http import ApiError
from distlaunch.emulator.store import ENDED
from distlaunch.job.persistent_resource import COLLECTION, fits, shortages
from distlaunch.job.vertex.fields import job_spec
from distlaunch.job.vertex.view import pools_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from distlaunch.emulator.store import Store

_TYPES = "type.googleapis.com/google"


def check_job(store: Store, parent: str, job: Mapping[str, Any]) -> None:
    """Refuse a job that names a persistent resource without free machines for it."""
    spec, location = job_spec(job), parent.rpartition("/")[0]
    if not (resource_id := spec.get("persistentResourceId")):
        return
    name = f"{location}/{COLLECTION}/{resource_id}"
    try:
        resource = with_use(store, store.get(name))
    except KeyError:
        raise ApiError(404, f"The PersistentResource {name} does not exist.") from None
    at_once = int(job.get("parallelTrialCount", 1))
    for short in shortages(resource, pools_of(spec["workerPoolSpecs"]), at_once):
        text = f"{resource_id} has {short.free} free {short.machine}, not {short.needed}."
        raise ApiError(400, f"worker_pool_specs: {text}")


def with_use(store: Store, resource: dict[str, Any]) -> dict[str, Any]:
    """Return a persistent resource with how many of its machines are in use."""
    for job in jobs_on(store, resource):
        for pool in pools_of(job_spec(job)["workerPoolSpecs"]):
            count = pool.replicas * int(job.get("parallelTrialCount", 1))
            for own in [each for each in resource["resourcePools"] if fits(each, pool)][:1]:
                own["usedReplicaCount"] = str(int(own.get("usedReplicaCount", 0)) + count)
    return resource


def jobs_on(store: Store, resource: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the jobs on a persistent resource that have not ended."""
    location, _, resource_id = resource["name"].rpartition(f"/{COLLECTION}/")
    for collection in ("customJobs", "hyperparameterTuningJobs"):
        for job in store.list(f"{location}/{collection}"):
            is_there = job_spec(job).get("persistentResourceId") == resource_id
            if is_there and job["state"] not in ENDED:
                yield job


def creation(resource: Mapping[str, Any]) -> dict[str, Any]:
    """Return the operation that creates a persistent resource."""
    operation = {"name": f"{resource['name']}/operations/1"}
    if resource["state"] != "RUNNING":
        return operation
    response = {"@type": f"{_TYPES}.cloud.aiplatform.v1.PersistentResource", **resource}
    return {**operation, "done": True, "response": response}
