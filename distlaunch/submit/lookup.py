"""Find a job by its launch id, its name, Google's number or its resource name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from distlaunch.engines.vertex import auth
from distlaunch.engines.vertex.client import connect, is_loopback
from distlaunch.engines.vertex.jobs import COLLECTIONS, Jobs, parse_name
from distlaunch.errors import DistlaunchError, GoogleError
from distlaunch.job.launch import LAUNCH_LABEL
from distlaunch.submit.records import Records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from distlaunch.events import ShowMessage
    from distlaunch.submit.records import Record

_LABEL_VALUE = re.compile(r"[a-z0-9_-]{1,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class LocatedJob:
    """A job's resource, the `Jobs` that it belongs to, and its record if this folder has one."""

    jobs: Jobs
    job: dict[str, Any]
    record: Record | None = None


@dataclass(frozen=True, slots=True)
class JobLocator:
    """Finds jobs in the project and region of the command line, the record or distlaunch.yaml.

    None is for those of the job's record, distlaunch.yaml or gcloud.
    """

    folder: Path  # the project's, with its records and distlaunch.yaml
    endpoint: str | None = None
    project: str | None = None
    region: str | None = None
    show_message: ShowMessage | None = None  # prints warnings and retries

    def jobs(self, record: Record | None = None, name: str = "") -> Jobs:
        """Return the jobs of the project and region, those of a record or a resource name first."""
        parts = parse_name(name) if name else None
        project = self.project or (record and record.project) or (parts and parts.project)
        region = (parts and parts.region) or (record and record.region) or self.region
        settings = {} if project and region else _job_file_settings(self.folder)
        project = project or settings.get("project") or auth.default_project()
        region = region or settings.get("region") or auth.default_region()
        if not project or not region:
            from distlaunch.checks.required_fields import no_project, no_region

            raise DistlaunchError((no_region() if project else no_project()).line)
        endpoint = self.endpoint or (self._recorded_endpoint(record) if record else None)
        session = connect(endpoint, project=project, show_message=self.show_message)
        return Jobs(session, project, region)

    def find(self, name: str | None) -> LocatedJob:
        """Return the job of an id or name; by default the newest of the folder's records."""
        records = Records(self.folder, self.show_message)
        record = records.find(name, project=self.project, region=self.region)
        if record:
            return self._find_recorded(record)
        if name is None:
            raise DistlaunchError(
                "no jobs submitted from this directory; pass a job ID (see 'distlaunch list')"
            )
        if "/" in name:
            jobs = self.jobs(name=name)
            return LocatedJob(jobs, jobs.get(name))
        try:
            jobs = self.jobs()
        except GoogleError as error:
            unknown = f"no job {name!r} was submitted from this directory{records.hint(name)}"
            raise error.with_text(f"{unknown}, and Google was not searched: {error}") from None
        newest = sorted(_search(jobs, name), key=lambda job: str(job.get("createTime", "")))[-1:]
        if not newest:
            raise DistlaunchError(
                f"no job {name!r} in project {jobs.project}, region {jobs.region}"
                f"{records.hint(name)}; see 'distlaunch list'"
            )
        return LocatedJob(jobs, newest[0])

    def _recorded_endpoint(self, record: Record) -> str | None:
        """Return the endpoint of a job's record, which is trusted only on this machine.

        A record is a file of the project's folder and may come from anyone, and credentials are
        sent to the endpoint.
        """
        endpoint = record.endpoint
        if endpoint and not is_loopback(endpoint):
            raise DistlaunchError(
                f"{record.launch_id}: its record names the endpoint {endpoint}, and credentials "
                "are sent to a remote endpoint only if it is given on the command line; if you "
                f"trust it, pass --endpoint {endpoint}"
            )
        if endpoint and self.show_message:
            self.show_message(f"using endpoint {endpoint}, where {record.launch_id} was submitted")
        return endpoint

    def _find_recorded(self, record: Record) -> LocatedJob:
        jobs = self.jobs(record, record.resource or "")
        if record.resource:
            return LocatedJob(jobs, jobs.get(record.resource), record)
        job = jobs.find(record.collection, record.launch_id)
        if job is None:
            problem = (
                "Google refused to create this job; run 'distlaunch submit' again"
                if record.was_refused
                else "the launch was interrupted before Google had its job; run 'distlaunch "
                "submit' to finish it"
            )
            raise DistlaunchError(f"{record.launch_id}: {problem}")
        return LocatedJob(jobs, job, record)


def _search(jobs: Jobs, name: str) -> Iterator[dict[str, Any]]:
    """Yield the jobs of a number, a launch id or a display name."""
    for collection in COLLECTIONS:
        if name.isdecimal():
            path = f"projects/{jobs.project}/locations/{jobs.region}/{collection}/{name}"
            try:
                yield jobs.get(path)
            except GoogleError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
            else:
                return
    for collection in COLLECTIONS:
        if _LABEL_VALUE.fullmatch(name):
            yield from jobs.list(collection, f"labels.{LAUNCH_LABEL}={name}")
        quoted = name.replace("\\", "\\\\").replace('"', '\\"')
        yield from jobs.list(collection, f'display_name="{quoted}"')


def _job_file_settings(folder: Path) -> dict[str, str]:
    """Return project and region of distlaunch.yaml; the rest of the file may be invalid."""
    from distlaunch.job.yaml_document import read_document

    try:
        settings = read_document(folder / "distlaunch.yaml").data
    except DistlaunchError:
        return {}
    names = ("project", "region")
    return {name: settings[name] for name in names if isinstance(settings.get(name), str)}
