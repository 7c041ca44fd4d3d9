"""Vertex AI as an `Engine`: the custom jobs and tuning jobs of one project and region."""

from __future__ import annotations

import json
import re
import tempfile
import time
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from distlaunch import timestamps
from distlaunch.engines.api import Created, LogSelection, Request
from distlaunch.engines.vertex.client import is_loopback
from distlaunch.engines.vertex.job_resource import read_status
from distlaunch.engines.vertex.jobs import Jobs, parse_name
from distlaunch.engines.vertex.log_query import without_trial
from distlaunch.errors import GoogleError, UsageError
from distlaunch.job import vertex
from distlaunch.job.launch import LAUNCH_LABEL, change_job_dir
from distlaunch.job.names import job_name
from distlaunch.job.vertex import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from distlaunch.engines.api import JobStatus
    from distlaunch.engines.vertex.client import Session
    from distlaunch.engines.vertex.follow import JobFollower
    from distlaunch.events import Event
    from distlaunch.failure_reasons import FailureReport
    from distlaunch.job.launch import LaunchRequest
    from distlaunch.job.vertex import Collection


_INPUT_FIELDS = fields.TUNED | {"displayName", "jobSpec", "labels", "encryptionSpec"}
_FIGURES_WINDOW = 600.0  # seconds before the end of a job, or now, that have its last figures
_VARIABLE = re.compile(r"\$\{(?=[A-Za-z_][A-Za-z0-9_]*\})")


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

    @property
    def place(self) -> dict[str, Any]:
        """The fields of a record."""
        return {"project": self.project, "region": self.region, "endpoint": self.endpoint}

    @property
    def location(self) -> str:
        """The project and the region in words."""
        return f"project {self.project}, region {self.region}"

    def in_region(self, region: str) -> VertexEngine:
        """Return the engine of another region."""
        return VertexEngine(self.session, self.project, region)

    @staticmethod
    def request(launch: LaunchRequest, launch_id: str, image: str | None) -> Request:
        """Return the request that creates a launch's job, with the id of the launch as a label."""
        body = launch.request(launch_id, image)
        return Request(
            launch.job.name, vertex.collection(launch.job), body, _output_directory(body)
        )

    def request_again(
        self, job: JobStatus, overrides: Sequence[str], program_args: Sequence[str]
    ) -> Callable[[str], Request]:
        """Return a function that makes the request for a job like another one from a launch id."""
        inputs = _input_fields(job.resource)
        if overrides or program_args:
            inputs = _override_inputs(inputs, overrides, program_args)
        collection = cast("Collection", parse_name(job.name).collection)

        def request(launch_id: str) -> Request:
            labels = inputs.get("labels", {}) | {LAUNCH_LABEL: launch_id}
            body = _with_new_folder(inputs, launch_id)
            folder = _output_directory(body)
            name = job_name(body.get("displayName") or job.id)
            return Request(name, collection, body | {"labels": labels}, folder, body != inputs)

        return request

    def create(self, request: Request, *, may_exist: bool) -> Created:
        """Create a job once; see `Jobs.create`."""
        collection = cast("Collection", request.collection)
        created = self._jobs.create(collection, request.body, may_exist=may_exist)
        return Created(self._status(created.job), created.is_new, created.duplicates)

    def find(self, launch_id: str, collection: str) -> JobStatus | None:
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

    def read_log(self, job: JobStatus, selection: LogSelection) -> Iterator[Event]:
        """Yield the lines and figures of a job's log that exist now."""
        from distlaunch.engines.vertex.log_reader import LogReader

        # Nothing is read twice, so that nothing of a long log has to be known.
        reader = LogReader(self._jobs, job.resource, selection, window=0.0)
        return reader.read_all(job.resource)

    def read_figures(self, job: JobStatus) -> dict[str, Any]:
        """Return the newest figures of each task."""
        from distlaunch.engines.vertex.log_query import read_figures

        end = timestamps.parse_or(job.ended, time.time())
        return read_figures(self._jobs, job.resource, end - _FIGURES_WINDOW)

    def shell(self, job: JobStatus, task: str) -> str:
        """Return the URL of a task's shell, of any running trial for a task without a trial."""
        if job.web_access:
            for name, uri in job.web_access.items():
                if task in (name, without_trial(name)):
                    return uri
            raise GoogleError(
                f"{job.id}: no shell in {task}; there are: {', '.join(job.web_access)}"
            )
        if is_loopback(self.endpoint):
            raise GoogleError("the emulator has no web access: its tasks run on this machine")
        if job.request.web_access:
            raise GoogleError(f"{job.id}: no shells yet", remedy="try again in a minute")
        remedy = f"run 'distlaunch resubmit {job.id} --set web_access=true'"
        raise GoogleError(f"{job.id}: was submitted without web_access: true", remedy=remedy)

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


def _input_fields(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's resource without the fields that Google fills in."""
    return {name: value for name, value in job.items() if name in _INPUT_FIELDS}


def _override_inputs(
    inputs: Mapping[str, Any], overrides: Sequence[str], program_args: Sequence[str]
) -> dict[str, Any]:
    """Return a job's inputs with fields overridden by ``--set`` and arguments appended."""
    from distlaunch.job.load import load_job

    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "job.json")
        text = json.dumps(inputs, ensure_ascii=False)
        config.write_text(_VARIABLE.sub("$${", text), encoding="utf-8")
        job = load_job(Path(folder), config=config, overrides=overrides, args=program_args).job
    if job.scheduling.max_cost is not None:  # which Google's job does not have
        raise UsageError("--set scheduling.max_cost: a job that exists takes --max-cost")
    return vertex.build_request(job, image=None, labels={}, job_dir=None)


def _output_directory(body: Mapping[str, Any]) -> str | None:
    """Return the job folder that a request names, without a trailing slash."""
    uri = fields.job_spec(body).get("baseOutputDirectory", {}).get("outputUriPrefix")
    return uri.rstrip("/") if uri else None


def _with_new_folder(inputs: Mapping[str, Any], launch_id: str) -> dict[str, Any]:
    """Return a copy of a job's inputs with a new job folder wherever they name the old one."""
    body = deepcopy(dict(inputs))
    old_id = (inputs.get("labels") or {}).get(LAUNCH_LABEL)

    def rename(folder: str) -> str:
        return _new_folder(folder, old_id, launch_id) if folder.startswith("gs://") else folder

    spec = fields.job_spec(body)
    directory = _output_directory(body)
    if directory:
        spec["baseOutputDirectory"]["outputUriPrefix"] = rename(directory)
    for pool in spec.get("workerPoolSpecs", []):
        for program in filter(None, (pool.get("containerSpec"), pool.get("pythonPackageSpec"))):
            for name in program.keys() & {"command", "args"}:
                program[name] = list(change_job_dir(program[name], rename))
    return body


def _new_folder(folder: str, old_id: str | None, launch_id: str) -> str:
    """Return the folder with the launch id replaced, or a folder of the launch below it."""
    bucket, *path = folder.removeprefix("gs://").rstrip("/").split("/")
    if old_id in path:
        path = [launch_id if part == old_id else part for part in path]
    else:
        path.append(launch_id)
    return "gs://" + "/".join([bucket, *path])
