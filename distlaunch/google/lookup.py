"""Which job is meant: by our id, its name, Google's number or its resource name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.errors import DistlaunchError, GoogleError
from distlaunch.google import defaults
from distlaunch.google.client import connect
from distlaunch.google.endpoints import is_loopback
from distlaunch.google.jobs import COLLECTIONS, Jobs, parse_name
from distlaunch.submit.records import LAUNCH_LABEL, Records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from distlaunch.submit.records import Record
    from distlaunch.ui.events import ShowMessage

_LABEL_VALUE = re.compile(r"[a-z0-9_-]{1,63}", re.ASCII)
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Place:
    """Where to look for jobs, as far as the command line says.

    Parameters
    ----------
    folder
        The project's folder, with its records and distlaunch.yaml.
    endpoint, project, region
        What was asked for; None for what the job's record, distlaunch.yaml or gcloud says.
    tell
        Shows that a call is being retried for some time, and what is skipped.
    """

    folder: Path
    endpoint: str | None = None
    project: str | None = None
    region: str | None = None
    tell: ShowMessage | None = None

    def jobs(self, record: Record | None = None, name: str = "") -> Jobs:
        """Return the jobs there.

        Parameters
        ----------
        record
            Of the job that is meant.
        name
            Its resource name.

        Raises
        ------
        DistlaunchError
            If there is no project or region, or the record names a remote endpoint.
        """
        parts = parse_name(name) if name else None
        project = self.project or (record and record.project) or (parts and parts.project)
        region = (parts and parts.region) or (record and record.region) or self.region
        said = {} if project and region else _said_in_file(self.folder)
        project = project or said.get("project") or defaults.project_id()
        region = region or said.get("region") or defaults.region()
        if not project:
            raise DistlaunchError(
                "no project: say --project ID, project: in distlaunch.yaml, or "
                "'gcloud config set project ID'"
            )
        if not region:
            raise DistlaunchError(
                "no region: say --region R, region: in distlaunch.yaml, or "
                "'gcloud config set ai/region R'"
            )
        endpoint = self.endpoint or _recorded_endpoint(record)
        return Jobs(connect(endpoint, project=project, tell=self.tell), project, region)

    def find(self, which: str | None) -> Found:
        """Return the job that is meant, the newest of the folder's records if none is named.

        Raises
        ------
        DistlaunchError
            If there is no such job.
        """
        records = Records(self.folder, self.tell)
        record = records.find(which, project=self.project, region=self.region)
        if record:
            return self._recorded(record)
        if which is None:
            raise DistlaunchError(
                "nothing was submitted from this folder yet; name a job, as "
                "'distlaunch list' shows them"
            )
        if "/" in which:
            jobs = self.jobs(name=which)
            return Found(jobs, jobs.get(which))
        jobs = self.jobs()
        found = max(_called(jobs, which), key=_creation, default=None)
        if found is None:
            hint = records.hint(which)
            raise DistlaunchError(
                f"no job {which!r} in project {jobs.project}, region {jobs.region}{hint}; "
                "'distlaunch list' shows them"
            )
        return Found(jobs, found)

    def _recorded(self, record: Record) -> Found:
        jobs = self.jobs(record, record.resource or "")
        if record.resource:
            return Found(jobs, jobs.get(record.resource), record)
        found = jobs.find(record.collection, record.launch_id)
        if found is None and record.was_refused:
            raise DistlaunchError(
                f"{record.launch_id}: Google refused to make this job; 'distlaunch submit' again"
            )
        if found is None:
            raise DistlaunchError(
                f"Google has no job of the launch {record.launch_id}, which was cut off; "
                "'distlaunch submit' finishes it"
            )
        return Found(jobs, found, record)


@dataclass(frozen=True, slots=True)
class Found:
    """A job: where it is, what Google says of it, and its record if it is from this folder."""

    jobs: Jobs
    job: dict[str, Any]
    record: Record | None = None


def job_id(job: dict[str, Any]) -> str:
    """Return what a job is named by: our id where we launched it, or Google's number."""
    return str((job.get("labels") or {}).get(LAUNCH_LABEL) or parse_name(job["name"]).id)


def _recorded_endpoint(record: Record | None) -> str | None:
    """Return the endpoint of a job's record, which is trusted only on this machine.

    A record is a file of the project's folder and may come from anyone, and credentials are sent to
    the endpoint.
    """
    endpoint = record.endpoint if record else None
    if not record or not endpoint or is_loopback(endpoint):
        return endpoint
    raise DistlaunchError(
        f"{record.launch_id}: its record names the endpoint {endpoint}, and credentials are sent "
        f"to a remote endpoint only if it is given on the command line; if you trust it, pass "
        f"--endpoint {endpoint}"
    )


def _called(jobs: Jobs, which: str) -> Iterator[dict[str, Any]]:
    """Go through the jobs of a number, a launch's id or a name."""
    for collection in COLLECTIONS:
        if which.isdecimal():
            name = f"projects/{jobs.project}/locations/{jobs.region}/{collection}/{which}"
            try:
                yield jobs.get(name)
            except GoogleError as problem:
                if problem.status != _NOT_FOUND:
                    raise
            else:
                return
    for collection in COLLECTIONS:
        if _LABEL_VALUE.fullmatch(which):
            yield from jobs.list(collection, f"labels.{LAUNCH_LABEL}={which}")
        quoted = which.replace("\\", "\\\\").replace('"', '\\"')
        yield from jobs.list(collection, f'display_name="{quoted}"')


def _creation(job: dict[str, Any]) -> str:
    return str(job.get("createTime", ""))


def _said_in_file(folder: Path) -> dict[str, str]:
    """Return what distlaunch.yaml says of project and region, without checking the rest of it."""
    try:
        text = (folder / "distlaunch.yaml").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    import yaml

    try:
        said = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except yaml.YAMLError:
        return {}
    found = said if isinstance(said, dict) else {}
    names = ("project", "region")
    return {name: found[name] for name in names if isinstance(found.get(name), str)}
