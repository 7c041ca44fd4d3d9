"""Vertex AI's job service: custom jobs and hyperparameter tuning jobs.

https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.customJobs
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.api_error import ApiError
from distlaunch.emulator.filters import matches, parse_filter
from distlaunch.emulator.http import Route, read_json
from distlaunch.emulator.job_messages import (
    as_json,
    check_job,
    check_location,
    parse_job,
    with_enum_numbers,
)
from distlaunch.emulator.store import ENDED, UnknownJob, parse_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from werkzeug.wrappers import Request

    from distlaunch.emulator.filters import Value
    from distlaunch.emulator.logs import LogStore
    from distlaunch.emulator.run.job_runner import JobRunner
    from distlaunch.emulator.store import Collection, Store

MAX_PAGE_SIZE = 100

_DELETED = "type.googleapis.com/google.cloud.aiplatform.v1.DeleteOperationMetadata"
_EMPTY = "type.googleapis.com/google.protobuf.Empty"


class JobService:
    """Creates, lists, cancels and deletes jobs."""

    def __init__(self, store: Store, logs: LogStore, runner: JobRunner) -> None:
        self._store = store
        self._logs = logs
        self._runner = runner

    def routes(self) -> Iterator[Route]:
        """Yield the API's methods."""
        for version in ("v1", "v1beta1"):
            jobs = (
                f"/{version}/projects/<project>/locations/<location>"
                "/<any(customJobs, hyperparameterTuningJobs):collection>"
            )
            yield Route("create", "POST", jobs, self._create)
            yield Route("list", "GET", jobs, self._list)
            yield Route("get", "GET", f"{jobs}/<job_id>", self._get)
            yield Route("delete", "DELETE", f"{jobs}/<job_id>", self._delete)
            yield Route("cancel", "POST", f"{jobs}/<job_id>:cancel", self._cancel)

    def _create(
        self, request: Request, project: str, location: str, collection: Collection
    ) -> dict[str, Any]:
        check_location(location)
        message = parse_job(collection, read_json(request))
        check_job(message)
        job = self._store.create(project, location, collection, as_json(message))
        self._logs.add_job(job["name"].rpartition("/")[2], project)
        self._runner.start(job["name"])
        return _as_requested(request, collection, job)

    def _list(
        self, request: Request, project: str, location: str, collection: Collection
    ) -> dict[str, Any]:
        check_location(location)
        expression = parse_filter(request.args.get("filter", ""), _value)
        size = request.args.get("pageSize", 0, int)
        if size < 0:
            raise ApiError(400, f"Invalid pageSize {size}.")
        size = min(size or MAX_PAGE_SIZE, MAX_PAGE_SIZE)
        before = request.args.get("pageToken", "")
        jobs = [
            job
            for job in self._store.list(project, location, collection)
            if (not before or job["createTime"] < before)
            and matches(expression, lambda field, job=job: _field(job, field))  # type: ignore[misc]
        ]
        page = [_as_requested(request, collection, job) for job in jobs[:size]]
        rest = {"nextPageToken": jobs[size - 1]["createTime"]} if len(jobs) > size else {}
        return ({collection: page} if page else {}) | rest

    def _get(
        self, request: Request, project: str, location: str, collection: Collection, job_id: str
    ) -> dict[str, Any]:
        return _as_requested(request, collection, self._job(project, location, collection, job_id))

    def _cancel(
        self, _: Request, project: str, location: str, collection: Collection, job_id: str
    ) -> dict[str, Any]:
        job = self._job(project, location, collection, job_id)
        if job["state"] in ENDED:
            raise _wrong_state(job, "cannot be cancelled")
        self._runner.cancel(job["name"])
        return {}

    def _delete(
        self, _: Request, project: str, location: str, collection: Collection, job_id: str
    ) -> dict[str, Any]:
        job = self._job(project, location, collection, job_id)
        if job["state"] not in ENDED:
            raise _wrong_state(job, "cannot be deleted; cancel it first")
        self._store.delete(job["name"])
        now = self._store.now()
        number = random.randrange(10**18, 9 * 10**18)  # noqa: S311 - not a secret
        return {
            "name": f"projects/{project}/locations/{location}/operations/{number}",
            "metadata": {
                "@type": _DELETED,
                "genericMetadata": {"createTime": now, "updateTime": now},
            },
            "done": True,
            "response": {"@type": _EMPTY},
        }

    def _job(
        self, project: str, location: str, collection: Collection, job_id: str
    ) -> dict[str, Any]:
        check_location(location)
        name = f"projects/{project}/locations/{location}/{collection}/{job_id}"
        try:
            return self._store.get(name)
        except UnknownJob:
            raise ApiError(404, f'The job "{name}" does not exist.') from None


def _as_requested(request: Request, collection: Collection, job: dict[str, Any]) -> dict[str, Any]:
    has_numbers = "enum-encoding=int" in request.args.get("$alt", "")
    return with_enum_numbers(collection, job) if has_numbers else job


def _value(field: tuple[str, ...], text: str) -> Value:
    """Return what a field of a job is compared with."""
    if field == ("create_time",):
        return parse_time(text)
    if field not in (("display_name",), ("state",)) and (field[0] != "labels" or len(field) != 2):
        raise ValueError(f"jobs cannot be filtered by {'.'.join(field)!r}")
    return text


def _field(job: dict[str, Any], field: tuple[str, ...]) -> Value:
    """Return the value of a field by which jobs can be filtered."""
    match field:
        case ("display_name",):
            return str(job["displayName"])
        case ("state",):
            return str(job["state"])
        case ("create_time",):
            return parse_time(job["createTime"])
        case ("labels", key):
            label: str | None = job.get("labels", {}).get(key)
            return label
    raise AssertionError(field)


def _wrong_state(job: dict[str, Any], consequence: str) -> ApiError:
    text = f'The job "{job["name"]}" is in state {job["state"]} and {consequence}.'
    return ApiError(400, text, status="FAILED_PRECONDITION")
