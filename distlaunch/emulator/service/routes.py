"""Which service answers a request, and what kind of call that is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

from distlaunch.emulator.service.route import Route, no_method
from distlaunch.emulator.service.storage_addresses import is_upload, needed

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlaunch.emulator.service.answers import Answer, Request
    from distlaunch.emulator.service.apis import Call
    from distlaunch.emulator.service.job_service import JobService
    from distlaunch.emulator.service.log_service import LogService
    from distlaunch.emulator.service.project_routes import ProjectRoutes
    from distlaunch.emulator.service.storage_service import StorageService
    from distlaunch.emulator.store import Collection

_PARENT = r"/v1(beta1)?/(?P<parent>projects/(?P<project>[^/]+)/locations/(?P<location>[^/]+))"
_JOBS = re.compile(
    _PARENT
    + r"/(?P<collection>customJobs|hyperparameterTuningJobs)(/(?P<id>[^/:]+)(?P<verb>:\w+)?)?"
)
_OPERATION = re.compile(_PARENT + r"(/\w+/[^/]+)?/operations/(?P<id>[^/:]+)(?P<verb>:\w+)?")
_ENTRIES = "/v2/entries:list"
_OF_APIS = re.compile(r"/v[123](beta1)?(/.*)?")


@dataclass(frozen=True, slots=True)
class Routes:
    """The services by their addresses, which are Google's."""

    jobs: JobService
    logs: LogService
    storage: StorageService
    project: ProjectRoutes

    def find(self, request: Request) -> Route:
        """Return where a request leads.

        Raises
        ------
        Refused
            If nowhere.
        """
        path = unquote(request.path)
        found = _JOBS.fullmatch(path)
        if found is not None:
            return self._job_route(request, found)
        found = _OPERATION.fullmatch(path)
        if found is not None:
            return self._operation_route(request, found)
        if path == _ENTRIES and request.method == "POST":
            return Route("logs", "", lambda _: self.logs.list(request), "logging.logEntries.list")
        around = self.project.find(request, path)
        if around is not None:
            return around
        if _OF_APIS.fullmatch(path):
            raise no_method(request)
        return Route(
            "storage",
            "",
            lambda _: self.storage.answer(request),
            needed(request),
            takes_any_content=is_upload(request),
        )

    def _job_route(self, request: Request, found: re.Match[str]) -> Route:
        project, location = found["project"], found["location"]
        collection = cast("Collection", found["collection"])
        name = f"{found['parent']}/{collection}/{found['id']}"
        jobs = self.jobs

        def route(call: Call, answer: Callable[[bool], Answer]) -> Route:
            return Route(call, project, answer, f"aiplatform.{collection}.{call}")

        match (request.method, *(part for part in ("id", "verb") if found[part] is not None)):
            case ("POST",):
                return route(
                    "create",
                    lambda is_over_quota: jobs.create(
                        request, project, location, collection, is_over_quota=is_over_quota
                    ),
                )
            case ("GET",):
                return route("list", lambda _: jobs.list(request, project, location, collection))
            case ("GET", "id"):
                return route("get", lambda _: jobs.get(request, name, collection))
            case ("DELETE", "id"):
                return route("delete", lambda _: jobs.delete(request, name, collection))
            case ("POST", "id", "verb") if found["verb"] == ":cancel":
                return route("cancel", lambda _: jobs.cancel(request, name, collection))
        raise no_method(request)

    def _operation_route(self, request: Request, found: re.Match[str]) -> Route:
        name = f"{found['parent']}/operations/{found['id']}"
        if (request.method, found["verb"]) in (("GET", None), ("POST", ":wait")):
            project, needs = found["project"], "aiplatform.customJobs.get"
            return Route("get", project, lambda _: self.jobs.operation(name), needs)
        raise no_method(request)
