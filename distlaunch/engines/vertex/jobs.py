"""Vertex AI's jobs of one project and region."""

from __future__ import annotations

import re
from contextlib import suppress
from heapq import nlargest
from http import HTTPStatus
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, get_args
from urllib.parse import quote

from distlaunch.engines.api import JobState
from distlaunch.engines.vertex.api_errors import QUOTA
from distlaunch.engines.vertex.client import Retries
from distlaunch.errors import CreateRefused, DistlaunchError, GoogleError, RetryableError
from distlaunch.job.launch import LAUNCH_LABEL
from distlaunch.job.vertex import Collection
from distlaunch.retry import RETRY_DEADLINE

if TYPE_CHECKING:
    import builtins
    from collections.abc import Iterator, Mapping

    from distlaunch.engines.vertex.client import Session

COLLECTIONS: tuple[Collection, ...] = get_args(Collection)

ACTIVE = " OR ".join(f'state="JOB_STATE_{state}"' for state in ("QUEUED", "PENDING", "RUNNING"))
"""The filter of jobs that run or wait."""

_PART = "[!-.0-~]+"  # printable ASCII without a slash
_NAME = re.compile(
    rf"projects/(?P<project>{_PART})/locations/(?P<region>[a-z0-9-]+)/"
    rf"(?P<collection>{'|'.join(COLLECTIONS)})/(?P<id>{_PART})",
    re.ASCII,
)
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{1,63}", re.ASCII)
_EXPECTED_NAME = "expected projects/P/locations/R/customJobs/NUMBER"
_PAGE = 100
_LOOKUP_DELAYS = (0.0, 1.0, 3.0)  # seconds before each look-up of a job, as lists may be behind


class CreatedResource(NamedTuple):
    """A job that Google has."""

    job: dict[str, Any]
    is_new: bool  # False if an earlier call created it
    duplicates: tuple[str, ...] = ()  # names of younger jobs that could not be cancelled


class JobName(NamedTuple):
    """The parts of a job's resource name; the project is often its number."""

    project: str
    region: str
    collection: str
    id: str


class Jobs:
    """The custom jobs and tuning jobs of one project and region.

    A call raises GoogleError if Google refuses or cannot be reached.
    """

    def __init__(self, session: Session, project: str, region: str) -> None:
        self.session = session
        self.project = project
        self.region = region

    def create(
        self, collection: str, body: Mapping[str, Any], *, may_exist: bool
    ) -> CreatedResource:
        """Create a job once: if a response is lost, the job is looked up before a retry.

        Parameters
        ----------
        body
            Google's JSON, with the label `LAUNCH_LABEL`.
        may_exist
            Whether an earlier command may have created the job, so that it is looked up first.

        Raises
        ------
        CreateRefused
            If it is refused, and no earlier call can have created it.
        GoogleError
            If it is refused after a lost response, or Google cannot be reached: it may exist.
        """
        launch_id = body["labels"][LAUNCH_LABEL]
        lost_responses = 0  # of calls that may have created the job
        retries = Retries(self.session)
        if may_exist and (existing := self._look_up(collection, launch_id)):
            return CreatedResource(existing, is_new=False)
        while True:
            try:
                job, is_new = self._create_once(collection, body), True
            except RetryableError as error:
                existing = None
                if error.may_have_been_processed:
                    lost_responses += 1
                    existing = self._look_up(collection, launch_id)
                if existing is None:
                    retries.wait(error)
                    continue
                job, is_new = existing, False
            except GoogleError as refusal:
                if lost_responses or may_exist:
                    raise
                raise CreateRefused.from_error(refusal) from refusal
            max_jobs = lost_responses + is_new
            if max_jobs == 1 and not may_exist:
                return CreatedResource(job, is_new)
            return self._keep_oldest(collection, launch_id, CreatedResource(job, is_new), max_jobs)

    def find(self, collection: str, launch_id: str) -> dict[str, Any] | None:
        """Return the oldest job with a launch id, None if Google lists none."""
        return min(self._list_launch(collection, launch_id), key=_age, default=None)

    def get(self, name: str, *, retry_deadline: float = RETRY_DEADLINE) -> dict[str, Any]:
        """Return a job by its resource name, of any region."""
        region = parse_name(name).region
        return self.session.call(
            "GET", "aiplatform", quote(name), region=region, retry_deadline=retry_deadline
        )

    def list(self, collection: str, matching: str = "") -> Iterator[dict[str, Any]]:
        """Yield jobs in Google's order, page by page; `matching` is Google's filter."""
        params: dict[str, str | int] = {"pageSize": _PAGE}
        if matching:
            params["filter"] = matching
        while True:
            page = self.session.call(
                "GET", "aiplatform", self._path(collection), params=params, region=self.region
            )
            yield from page.get(collection) or []
            if not page.get("nextPageToken"):
                return
            params["pageToken"] = page["nextPageToken"]

    def search(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the job of a number, or else the jobs of a launch id or a display name."""
        for collection in COLLECTIONS if name.isdecimal() else ():
            job = self._get_if_exists(f"{self._path(collection)}/{name}")
            if job:
                yield job
                return
        for collection in COLLECTIONS:
            if _LABEL_VALUE.fullmatch(name):
                yield from self._list_launch(collection, name)
            quoted = name.replace("\\", "\\\\").replace('"', '\\"')
            yield from self.list(collection, f'display_name="{quoted}"')

    def newest(self, limit: int, *, all_jobs: bool) -> builtins.list[dict[str, Any]]:
        """Return the newest jobs of both collections, the newest first.

        Google documents no order, so all jobs are listed.
        """
        label = "" if all_jobs else f"labels.{LAUNCH_LABEL}:*"
        jobs = chain.from_iterable(self.list(collection, label) for collection in COLLECTIONS)
        return nlargest(limit, jobs, key=_age)

    def cancel(self, name: str) -> None:
        """Request the end of a job, which passes through CANCELLING."""
        region = parse_name(name).region
        self.session.call("POST", "aiplatform", f"{quote(name)}:cancel", body={}, region=region)

    def _path(self, collection: str) -> str:
        return f"projects/{quote(self.project, safe='')}/locations/{self.region}/{collection}"

    def _get_if_exists(self, name: str) -> dict[str, Any] | None:
        try:
            return self.get(name)
        except GoogleError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    def _create_once(self, collection: str, body: Mapping[str, Any]) -> dict[str, Any]:
        try:
            job = self.session.call(
                "POST",
                "aiplatform",
                self._path(collection),
                body=body,
                region=self.region,
                retry_deadline=0,
            )
        except RetryableError as error:
            # A used-up quota outlasts all retries; a limit of calls a minute does not.
            if error.reason == QUOTA:
                raise GoogleError(str(error), status=error.status, reason=QUOTA) from None
            raise
        if not isinstance(job.get("name"), str):
            raise RetryableError("google's answer to the job's creation does not name the job")
        return job

    def _look_up(self, collection: str, launch_id: str) -> dict[str, Any] | None:
        """Return a job that may have been created; repeated, as lists may be behind."""
        try:
            for delay in _LOOKUP_DELAYS:
                self.session.sleep(delay)
                job = self.find(collection, launch_id)
                if job:
                    return job
        except GoogleError as error:
            raise error.with_text(
                f"the job may have been created, but the look-up failed ({error}); run the same "
                "command again: it looks for the job first and never creates a second one"
            ) from error
        return None

    def _keep_oldest(
        self, collection: str, launch_id: str, known: CreatedResource, max_jobs: int
    ) -> CreatedResource:
        """Return the oldest job of a launch, and cancel the others."""
        jobs = {known.job["name"]: known.job}
        with suppress(GoogleError):  # the job exists, even if it cannot be listed
            for delay in _LOOKUP_DELAYS:
                self.session.sleep(delay)
                jobs |= {job["name"]: job for job in self._list_launch(collection, launch_id)}
                if len(jobs) >= max_jobs:
                    break
        oldest, *others = sorted(jobs.values(), key=_age)
        running = tuple(job["name"] for job in others if not self._end_duplicate(job["name"]))
        return CreatedResource(
            oldest, known.is_new and oldest["name"] == known.job["name"], running
        )

    def _end_duplicate(self, name: str) -> bool:
        """Cancel a job, and return whether that succeeded or it has ended."""
        try:
            self.cancel(name)
        except GoogleError:
            with suppress(GoogleError):
                return state(self.get(name)).is_terminal
            return False
        return True

    def _list_launch(self, collection: str, launch_id: str) -> Iterator[dict[str, Any]]:
        return self.list(collection, f"labels.{LAUNCH_LABEL}={launch_id}")


def parse_name(name: str) -> JobName:
    """Return the parts of a job's resource name; raise DistlaunchError if it is not one."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise DistlaunchError(f"{name!r} is not a job; {_EXPECTED_NAME}")
    return JobName(**match.groupdict())


def state(job: Mapping[str, Any]) -> JobState:
    """Return a job's state; UNSPECIFIED for one that is not known here."""
    name = str(job.get("state")).removeprefix("JOB_STATE_")
    return JobState.__members__.get(name, JobState.UNSPECIFIED)


def _age(job: Mapping[str, Any]) -> tuple[str, str]:
    return str(job.get("createTime", "")), str(job.get("name", ""))
