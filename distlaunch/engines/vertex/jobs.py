"""Vertex AI's jobs of one project and region."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from enum import Enum
from heapq import nlargest
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args
from urllib.parse import quote

from distlaunch.engines.vertex.api_errors import QUOTA
from distlaunch.engines.vertex.client import Retries
from distlaunch.errors import CreateRefused, DistlaunchError, GoogleError, RetryableError
from distlaunch.job.launch import LAUNCH_LABEL
from distlaunch.job.vertex import fields
from distlaunch.retry import RETRY_DEADLINE

if TYPE_CHECKING:
    import builtins
    from collections.abc import Iterator, Mapping

    from distlaunch.engines.vertex.client import Session

Collection = Literal["customJobs", "hyperparameterTuningJobs"]
COLLECTIONS: tuple[Collection, ...] = get_args(Collection)

_PART = "[!-.0-~]+"  # printable ASCII without a slash
_NAME = re.compile(
    rf"projects/(?P<project>{_PART})/locations/(?P<region>[a-z0-9-]+)/"
    rf"(?P<collection>{'|'.join(COLLECTIONS)})/(?P<id>{_PART})",
    re.ASCII,
)
_EXPECTED_NAME = "expected projects/P/locations/R/customJobs/NUMBER"
_PAGE = 100
_STOCKOUTS = (
    "stockout",
    "resources are insufficient in region",
    "does not have enough resources available",
    "resource_pool_exhausted",
    "instance is currently unavailable in the",
)
_LOOKUP_DELAYS = (0.0, 1.0, 3.0)  # seconds before each look-up of a job, as lists may be behind


class JobState(str, Enum):
    """The state of a job; Google's name without the prefix ``JOB_STATE_``."""

    UNSPECIFIED = "UNSPECIFIED"
    QUEUED = "QUEUED"
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELLED = "CANCELLED"
    PAUSED = "PAUSED"
    EXPIRED = "EXPIRED"
    UPDATING = "UPDATING"
    PARTIALLY_SUCCEEDED = "PARTIALLY_SUCCEEDED"

    __str__ = str.__str__

    @property
    def is_terminal(self) -> bool:
        """Whether a job in this state has ended."""
        running = ("RUNNING", "CANCELLING", "PAUSED", "UPDATING")
        return not self.is_before_running and self.value not in running

    @property
    def is_before_running(self) -> bool:
        """Whether a job in this state has not started."""
        return self.value in ("UNSPECIFIED", "QUEUED", "PENDING")


class Created(NamedTuple):
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

    def create(self, collection: str, body: Mapping[str, Any], *, may_exist: bool) -> Created:
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
            return Created(existing, is_new=False)
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
                return Created(job, is_new)
            return self._keep_oldest(collection, launch_id, Created(job, is_new), max_jobs)

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
        self, collection: str, launch_id: str, known: Created, max_jobs: int
    ) -> Created:
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
        return Created(oldest, known.is_new and oldest["name"] == known.job["name"], running)

    def _end_duplicate(self, name: str) -> bool:
        """Cancel a job, and return whether that succeeded or it has ended."""
        try:
            self.cancel(name)
        except GoogleError:
            with suppress(GoogleError):
                return has_ended(self.get(name))
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


def job_id(job: Mapping[str, Any]) -> str:
    """Return the launch id of a job that distlaunch submitted, and Google's number of others."""
    return str((job.get("labels") or {}).get(LAUNCH_LABEL) or parse_name(job["name"]).id)


def state(job: Mapping[str, Any]) -> JobState:
    """Return a job's state; UNSPECIFIED for one that is not known here."""
    name = str(job.get("state")).removeprefix("JOB_STATE_")
    return JobState.__members__.get(name, JobState.UNSPECIFIED)


def has_ended(job: Mapping[str, Any]) -> bool:
    """Whether a job has ended, with success or without."""
    return state(job).is_terminal


def is_stockout(job: Mapping[str, Any]) -> bool:
    """Whether a job has ended because its region has no machines for it.

    Such a job never started. Quotas have other messages
    (https://docs.cloud.google.com/compute/docs/resource-error).
    """
    if "startTime" in job:
        return False
    is_short = state(job) is JobState.FAILED and _names_stockout(job)
    return is_short or state(job) is JobState.EXPIRED


def is_preempted(job: Mapping[str, Any]) -> bool:
    """Whether a Spot job that was running has failed because its machines were taken away.

    Vertex AI retries it, and then reports a stockout
    (https://docs.cloud.google.com/vertex-ai/docs/training/use-spot-vms).
    """
    is_spot = (fields.job_spec(job).get("scheduling") or {}).get("strategy") == "SPOT"
    is_failed = state(job) is JobState.FAILED and "startTime" in job
    return is_spot and is_failed and _names_stockout(job)


def _names_stockout(job: Mapping[str, Any]) -> bool:
    message = platform_message(job).lower()
    return any(text in message for text in _STOCKOUTS)


def platform_message(job: Mapping[str, Any]) -> str:
    """Return Vertex AI's own words of a job's error, without the lines of a task that it quotes."""
    return error_message(job).partition("exited with a non-zero status")[0]


def error_message(job: Mapping[str, Any]) -> str:
    """Return Google's reason for a job's failure in one line, empty while there is none.

    It quotes the last lines of a task, which are JSON if the task writes structured logs.
    """
    lines = str((job.get("error") or {}).get("message", "")).splitlines()
    return " ".join(" ".join(map(message_of, lines)).split())


def message_of(line: str) -> str:
    """Return the message of a line of a structured log, and other lines as they are."""
    if line.lstrip().startswith("{"):
        with suppress(KeyError, ValueError, RecursionError):
            return str(json.loads(line)["message"])
    return line


def console_url(job: Mapping[str, Any], project: str) -> str:
    """Return the URL of a job's page in Google's console."""
    name = parse_name(job["name"])
    return (
        f"https://console.cloud.google.com/agent-platform/locations/{name.region}/training/"
        f"{name.id}?project={project}"
    )


def tensorboard_url(job: Mapping[str, Any]) -> str | None:
    """Return the URL of a job's page in its Vertex AI TensorBoard, None without one.

    It has the form of ``custom_job_tensorboard_console_uri`` of google-cloud-aiplatform.
    """
    board: str | None = fields.job_spec(job).get("tensorboard")
    if not board:
        return None
    name = parse_name(job["name"])
    path = f"{board}/experiments/{name.id}".replace("/", "+")
    return f"https://{name.region}.tensorboard.googleusercontent.com/experiment/{path}"


def _age(job: Mapping[str, Any]) -> tuple[str, str]:
    return str(job.get("createTime", "")), str(job.get("name", ""))
