"""Vertex AI's persistent resources of one project and region.

https://docs.cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.persistentResources
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from distlaunch.engines.vertex.jobs import ACTIVE, COLLECTIONS, Jobs
from distlaunch.errors import GoogleError
from distlaunch.job.persistent_resource import COLLECTION
from distlaunch.job.vertex.fields import job_spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from distlaunch.engines.vertex.engine import VertexEngine


class PersistentResources:
    """Creates, lists and deletes them; GoogleError is raised if Google refuses a call."""

    def __init__(self, engine: VertexEngine) -> None:
        self._session, self._region = engine.session, engine.region
        self._jobs = Jobs(engine.session, engine.project, engine.region)
        project = quote(engine.project, safe="")
        self._path = f"projects/{project}/locations/{engine.region}/{COLLECTION}"

    def get(self, name: str) -> dict[str, Any] | None:
        """Return one by its id, None if there is none."""
        try:
            return self._call("GET", f"{self._path}/{quote(name, safe='')}")
        except GoogleError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    def all(self) -> Iterator[dict[str, Any]]:
        """Yield all."""
        return self._jobs.list(COLLECTION)

    def create(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Start to create one, and return the operation.

        It is empty if an earlier call, whose response was lost, created one of this id.
        """
        try:
            return self._call("POST", self._path, params={"persistentResourceId": name}, body=body)
        except GoogleError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            return {}

    def delete(self, name: str) -> dict[str, Any]:
        """Start to delete one, and return the operation; its jobs are cancelled."""
        return self._call("DELETE", f"{self._path}/{quote(name, safe='')}")

    def is_up(self, name: str, operation: Mapping[str, Any]) -> bool:
        """Whether one that is being created is up; GoogleError is raised if it will not be."""
        is_created = not operation or self.is_done(operation)
        resource = self.get(name) or {"state": "gone" if is_created else "PROVISIONING"}
        state, error = resource.get("state"), resource.get("error") or {}
        if state in ("ERROR", "STOPPING", "gone"):
            remedy = f"'distlaunch machines down {name}' removes it"
            reason = f": {error['message']}" if error.get("message") else ""
            raise GoogleError(f"{name} is {state}{reason}", remedy=remedy)
        return state == "RUNNING"

    def is_done(self, operation: Mapping[str, Any]) -> bool:
        """Whether an operation is done; GoogleError is raised if it has failed."""
        if not operation.get("done"):
            operation = self._call("GET", quote(operation["name"]))
        if error := operation.get("error"):
            remedy = "'distlaunch machines list' shows what is left"
            raise GoogleError(f"Vertex AI could not do it: {error.get('message')}", remedy=remedy)
        return bool(operation.get("done"))

    def active_jobs(self, name: str) -> list[dict[str, Any]]:
        """Return the jobs that run on one or wait for it."""
        jobs = (job for collection in COLLECTIONS for job in self._jobs.list(collection, ACTIVE))
        return [job for job in jobs if job_spec(job).get("persistentResourceId") == name]

    def _call(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        return self._session.call(method, "aiplatform", path, region=self._region, **options)
