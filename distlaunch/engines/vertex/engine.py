"""Vertex AI as an `Engine`: the custom jobs and tuning jobs of one project and region."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from distlaunch.engines.api import Created, LogSelection, Request
from distlaunch.engines.vertex import resubmission
from distlaunch.engines.vertex.client import is_loopback
from distlaunch.engines.vertex.jobs import Jobs, parse_name
from distlaunch.engines.vertex.status import read_status
from distlaunch.job import vertex
from distlaunch.job.launch import LAUNCH_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from distlaunch.engines.api import JobStatus
    from distlaunch.engines.vertex.client import Session
    from distlaunch.engines.vertex.follow import JobFollower
    from distlaunch.events import TaskLines
    from distlaunch.failure_reasons import FailureReport
    from distlaunch.job.launch import LaunchRequest
    from distlaunch.job.vertex import Collection


class VertexEngine:
    """The jobs of one project and region; see `Engine`."""

    def __init__(self, session: Session, project: str, region: str) -> None:
        self.session = session
        self.project = project
        self.region = region
        self._jobs = Jobs(session, project, region)

    @property
    def endpoint(self) -> str | None:
        """The URL that replaces Google's."""
        return self.session.endpoint

    def in_region(self, region: str) -> VertexEngine:
        """Return the engine of another region."""
        return VertexEngine(self.session, self.project, region)

    @staticmethod
    def request(launch: LaunchRequest, launch_id: str, image: str | None) -> Request:
        """Return the request that creates a launch's job, with the id of the launch as a label."""
        body = launch.request(launch_id, image)
        return Request(vertex.collection(launch.job), body, resubmission.output_directory(body))

    @staticmethod
    def request_again(
        job: JobStatus, overrides: Sequence[str], program_args: Sequence[str]
    ) -> Callable[[str], Request]:
        """Return a function that makes the request for a job like another one from a launch id."""
        inputs = resubmission.input_fields(job.resource)
        if overrides or program_args:
            inputs = resubmission.override_inputs(inputs, overrides, program_args)
        collection = cast("Collection", parse_name(job.name).collection)

        def request(launch_id: str) -> Request:
            labels = inputs.get("labels", {}) | {LAUNCH_LABEL: launch_id}
            body = resubmission.with_new_folder(inputs, launch_id)
            folder = resubmission.output_directory(body)
            return Request(collection, body | {"labels": labels}, folder, body != inputs)

        return request

    def create(self, request: Request, *, may_exist: bool) -> Created:
        """Create a job once; see `Jobs.create`."""
        created = self._jobs.create(request.collection, request.body, may_exist=may_exist)
        return Created(self._status(created.job), created.is_new, created.duplicates)

    def find(self, launch_id: str, collection: Collection) -> JobStatus | None:
        """Return the oldest job of a launch, None if Google lists none."""
        job = self._jobs.find(collection, launch_id)
        return self._status(job) if job else None

    def get(self, name: str) -> JobStatus:
        """Return a job by its resource name, of any region."""
        return self._status(self._jobs.get(name))

    def search(self, name: str) -> list[JobStatus]:
        """Return the jobs of a launch id, a display name or Google's number, the newest last."""
        return sorted(map(self._status, self._jobs.search(name)), key=lambda job: job.created or "")

    def newest(self, limit: int, *, all_jobs: bool) -> list[JobStatus]:
        """Return the newest jobs, the newest first; by default those of distlaunch."""
        return [*map(self._status, self._jobs.newest(limit, all_jobs=all_jobs))]

    def cancel(self, name: str) -> None:
        """Request the end of a job, which passes through CANCELLING."""
        self._jobs.cancel(name)

    def follow(
        self,
        job: JobStatus,
        selection: LogSelection | None,
        *,
        sleep: Callable[[float], None],
        max_wait: float | None = None,
    ) -> JobFollower:
        """Return a job's events; see `JobFollower`."""
        from distlaunch.engines.vertex.follow import EMULATOR, GOOGLE, JobFollower

        intervals = EMULATOR if is_loopback(self.endpoint) else GOOGLE
        return JobFollower(
            self._jobs, job, selection, max_wait=max_wait, intervals=intervals, sleep=sleep
        )

    def read_log(self, job: JobStatus, selection: LogSelection) -> Iterator[TaskLines]:
        """Yield the lines of a job's log that exist now."""
        from distlaunch.engines.vertex.log_reader import LogReader

        return LogReader(self._jobs, job.resource, selection).read_all(job.resource)

    def find_failure(self, job: JobStatus) -> FailureReport | None:
        """Return the first failure of a job, None for one that has not failed."""
        from distlaunch.engines.vertex.failure import find_failure

        return find_failure(self._jobs, job.resource)

    def read_file(self, uri: str) -> bytes | None:
        """Return the content of a file in a bucket, None if there is none."""
        from distlaunch.engines.vertex import storage

        return storage.read(self.session, uri)

    def _status(self, resource: Mapping[str, Any]) -> JobStatus:
        return read_status(resource, self.project)
