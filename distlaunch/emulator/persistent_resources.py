"""Vertex AI's persistent resources, on which jobs of the emulator run.

https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.persistentResources
"""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.http import ApiError, Route, read_json
from distlaunch.emulator.job_service import check_machine, parent_of, parse_message, require
from distlaunch.emulator.store import ENDED, project_number
from distlaunch.job.persistent_resource import place, read_pools
from distlaunch.job.vertex.fields import job_spec
from distlaunch.job.vertex.view import pools_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from werkzeug.wrappers import Request

    from distlaunch.emulator.job_runner import JobRunner
    from distlaunch.emulator.store import Store

_COLLECTION = "persistentResources"
_TYPES = "type.googleapis.com/google"


class PersistentResourceService:
    """Creates, lists and deletes persistent resources, and checks the jobs on them."""

    def __init__(self, store: Store, runner: JobRunner) -> None:
        self._store = store
        self._runner = runner
        self._resources: dict[str, tuple[dict[str, Any], float]] = {}  # and when it is up

    def routes(self) -> Iterator[Route]:
        """Yield the API's methods."""
        for version in ("v1", "v1beta1"):
            path = f"/{version}/projects/<project>/locations/<location>/{_COLLECTION}"
            yield Route("POST", path, self._create)
            yield Route("GET", path, self._list)
            yield Route("GET", f"{path}/<name>", self._get)
            yield Route("DELETE", f"{path}/<name>", self._delete)
            yield Route("GET", f"{path}/<name>/operations/1", self._operation)

    def check_job(self, parent: str, job: Mapping[str, Any]) -> None:
        """Refuse a job that its persistent resource, if it names one, has no machines for."""
        spec, (_, project, _, location, _) = job_spec(job), parent.split("/")
        if not (name := spec.get("persistentResourceId")):
            return
        machine_pools = read_pools(self._find(name, project, location))
        at_once = int(job.get("parallelTrialCount", 1))
        needed, homeless = place(pools_of(spec["workerPoolSpecs"]), machine_pools, at_once)
        path = "worker_pool_specs"
        for other in homeless:
            require(False, path, f"Persistent resource {name} has no {other.describe()}.")
        for index, pool in enumerate(machine_pools):
            free = pool.most - pool.used
            text = f"Persistent resource {name} has {free} free {pool.machines.machine}."
            require(needed[index] <= free, path, text)

    def _create(self, request: Request, *, project: str, location: str) -> dict[str, Any]:
        name = request.args.get("persistentResourceId") or request.args.get(
            "persistent_resource_id", ""
        )
        resource, message = parse_message(_COLLECTION, read_json(request))
        require(name, "persistent_resource_id", "An id is required.")
        require(message.resource_pools, "resource_pools", "A resource pool is required.")
        for number, pool in enumerate(message.resource_pools):
            path = f"resource_pools[{number}]"
            require(pool.replica_count > 0, f"{path}.replica_count", "It must be greater than 0.")
            check_machine(pool.machine_spec, f"{path}.machine_spec")
        full_name = _full_name(project, location, name)
        if full_name in self._resources:
            raise ApiError(409, f"PersistentResource {full_name} already exists.")
        resource |= {"name": full_name, "createTime": self._store.now()}
        self._resources[full_name] = resource, time.monotonic() + self._runner.timings.states
        return self._operation(request, project=project, location=location, name=name)

    def _list(self, _: Request, *, project: str, location: str) -> dict[str, Any]:
        names = [name for name in self._resources if name.startswith(_full_name(project, location))]
        found = [self._find(name.rpartition("/")[2], project, location) for name in names]
        return {_COLLECTION: found} if found else {}

    def _get(self, _: Request, *, project: str, location: str, name: str) -> dict[str, Any]:
        return self._find(name, project, location)

    def _delete(self, _: Request, *, project: str, location: str, name: str) -> dict[str, Any]:
        full_name = self._find(name, project, location)["name"]
        for job in self._jobs(project, location, name):
            self._runner.cancel(job["name"])
        del self._resources[full_name]
        empty = {"@type": f"{_TYPES}.protobuf.Empty"}
        return {"name": f"{full_name}/operations/2", "done": True, "response": empty}

    def _operation(self, _: Request, *, project: str, location: str, name: str) -> dict[str, Any]:
        resource = self._find(name, project, location)
        operation = {"name": f"{resource['name']}/operations/1"}
        if resource["state"] != "RUNNING":
            return operation
        response = {"@type": f"{_TYPES}.cloud.aiplatform.v1.PersistentResource", **resource}
        return {**operation, "done": True, "response": response}

    def _find(self, name: str, project: str, location: str) -> dict[str, Any]:
        full_name = _full_name(project, location, name)
        if full_name not in self._resources:
            raise ApiError(404, f"The PersistentResource {full_name} does not exist.")
        stored, start = self._resources[full_name]
        resource = copy.deepcopy(stored) | {"state": "PROVISIONING"}
        if time.monotonic() < start:
            return resource
        stored.setdefault("startTime", self._store.now())
        resource |= {"state": "RUNNING", "startTime": stored["startTime"]}
        for job in self._jobs(project, location, name):
            pools, at_once = job_spec(job)["workerPoolSpecs"], int(job.get("parallelTrialCount", 1))
            needed, _ = place(pools_of(pools), read_pools(resource), at_once)
            for index, count in needed.items():
                pool = resource["resourcePools"][index]
                pool["usedReplicaCount"] = str(int(pool.get("usedReplicaCount", 0)) + count)
        return resource

    def _jobs(self, project: str, location: str, name: str) -> list[dict[str, Any]]:
        """Return the jobs on a persistent resource that have not ended."""
        return [
            job
            for collection in ("customJobs", "hyperparameterTuningJobs")
            for job in self._store.list(f"projects/{project}/locations/{location}/{collection}")
            if job_spec(job).get("persistentResourceId") == name and job["state"] not in ENDED
        ]


def _full_name(project: str, location: str, name: str = "") -> str:
    parent = parent_of(project=project_number(project), location=location, collection=_COLLECTION)
    return f"{parent}/{name}"
