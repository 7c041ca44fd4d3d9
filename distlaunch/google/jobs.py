"""Vertex AI's jobs of one project and region."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from heapq import nlargest
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args
from urllib.parse import quote

from distlaunch.errors import CreateRefused, DistlaunchError, GoogleError, Unavailable
from distlaunch.google.answers import JOB, mismatch
from distlaunch.google.api_errors import QUOTA
from distlaunch.google.client import PATIENCE, delays
from distlaunch.google.failures import INVALID
from distlaunch.submit.records import LAUNCH_LABEL

if TYPE_CHECKING:
    import builtins
    from collections.abc import Iterator, Mapping

    from distlaunch.google.client import Session

Collection = Literal["customJobs", "hyperparameterTuningJobs"]
COLLECTIONS: tuple[Collection, ...] = get_args(Collection)

ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED"})

_PART = "[!-.0-~]+"  # printable ASCII without a slash
_NAME = re.compile(
    rf"projects/(?P<project>{_PART})/locations/(?P<region>[a-z0-9-]+)/"
    rf"(?P<collection>{'|'.join(COLLECTIONS)})/(?P<id>{_PART})",
    re.ASCII,
)
_SHOWN = 60  # characters of a name
_PAGE = 100
_LOOKS = (0.0, 1.0, 3.0)  # seconds before each look for a job, as lists may be behind


class Created(NamedTuple):
    """A job that Google has; `is_new` is False where an earlier call was found to have made it.

    `duplicates` are the resource names of younger jobs of the same launch that could not be
    cancelled.
    """

    job: dict[str, Any]
    is_new: bool
    duplicates: tuple[str, ...] = ()


class Name(NamedTuple):
    """The parts of a job's resource name; the project's is often its number."""

    project: str
    region: str
    collection: str
    id: str


class Jobs:
    """The custom jobs and tuning jobs of one project and region.

    Parameters
    ----------
    session
        What carries the calls.
    project, region
        Where jobs are made, listed and looked for.
    """

    def __init__(self, session: Session, project: str, region: str) -> None:
        self.session = session
        self.project = project
        self.region = region

    def create(self, collection: str, body: Mapping[str, Any], *, may_exist: bool) -> Created:
        """Make a job, once: where an answer is lost, the job is looked for before another try.

        Parameters
        ----------
        body
            Google's JSON, with the label ``distlaunch-launch``.
        may_exist
            Whether an earlier command may have made it, so that it is looked for first.

        Raises
        ------
        CreateRefused
            If it is refused, and no earlier call can have created it.
        GoogleError
            If it is refused after a call whose answer was lost, or the look-up is refused: the job
            may exist.
        Unavailable
            If Google cannot be reached: the job may exist.
        """
        launch_id = body["labels"][LAUNCH_LABEL]
        session, lost = self.session, 0  # creations that may have been heard without an answer
        began = session.clock()
        if may_exist and (found := self._look(collection, launch_id)):
            return Created(found, is_new=False)
        for delay in delays():
            try:
                answer = self._try(collection, body)
            except GoogleError as refusal:
                if lost or may_exist:
                    raise
                raise _create_refused(refusal) from refusal
            if not isinstance(answer, Unavailable):
                if lost or may_exist:
                    return self._only(collection, launch_id, answer, most=lost + 1)
                return Created(answer, is_new=True)
            lost += answer.heard
            if answer.heard and (found := self._look(collection, launch_id)):
                only = self._only(collection, launch_id, found, most=lost) if lost > 1 else None
                return (only or Created(found, is_new=False))._replace(is_new=False)
            wait = max(answer.wait, delay)
            if session.clock() + wait > began + PATIENCE or session.is_in_vain(answer):
                raise answer
            session.sleep(wait)
        raise AssertionError  # there is always another delay

    def find(self, collection: str, launch_id: str) -> dict[str, Any] | None:
        """Return the job with this launch id, the oldest if there were more, if Google lists one.

        Raises
        ------
        GoogleError
            If Google refuses, or cannot be reached.
        """
        return min(self._labelled(collection, launch_id), key=_age, default=None)

    def get(self, name: str, *, patience: float = PATIENCE) -> dict[str, Any]:
        """Return a job by its resource name, in whatever region it is.

        Raises
        ------
        GoogleError
            If there is none, Google refuses, it cannot be reached, or the answer is not valid.
        """
        job = self._call("GET", name, patience=patience)
        problem = _mismatch(job)
        if problem:
            region = parse_name(name).region
            raise self.session.invalid("aiplatform", problem, region=region)
        return job

    def list(
        self,
        collection: str,
        matching: str = "",
        limit: int | None = None,
        *,
        skips_invalid: bool = True,
    ) -> Iterator[dict[str, Any]]:
        """Go through jobs in Google's order, page by page.

        Parameters
        ----------
        matching
            A filter, as ``labels.team=vision`` or ``display_name="digits"``.
        limit
            How many at most.
        skips_invalid
            Whether a job with a field of a wrong type is skipped with a warning, not an error.

        Raises
        ------
        GoogleError
            If Google refuses, cannot be reached, or the answer is not valid.
        """
        page: dict[str, Any] = {collection: [], "nextPageToken": str}
        params: dict[str, str | int] = {"pageSize": min(_PAGE, limit or _PAGE)}
        if matching:
            params["filter"] = matching
        path = f"projects/{quote(self.project, safe='')}/locations/{self.region}/{collection}"
        left, seen = limit, 0
        while True:
            answer = self.session.call("GET", "aiplatform", path, params=params, region=self.region)
            problem = mismatch(answer, page)
            if problem:
                raise self._invalid(problem)
            jobs = answer.get(collection) or []
            for number, job in enumerate(jobs[:left], seen):
                problem = _mismatch(job, f"{collection}[{number}]")
                if not problem:
                    yield job
                elif skips_invalid:
                    self.session.warn(f"{self._invalid(problem)}; this job is skipped")
                else:
                    raise self._invalid(problem)
            seen += len(jobs)
            left = None if left is None else left - len(jobs)
            token = answer.get("nextPageToken")
            if not token or (left is not None and left <= 0):
                return
            params["pageToken"] = token

    def newest(self, limit: int, *, everybodys: bool) -> builtins.list[dict[str, Any]]:
        """Return the newest jobs of both kinds, the newest first.

        Google promises no order, so all are looked at.

        Parameters
        ----------
        everybodys
            Whether also those that we did not launch.

        Raises
        ------
        GoogleError
            If Google refuses, or cannot be reached.
        """
        matching = "" if everybodys else f"labels.{LAUNCH_LABEL}:*"
        every = chain.from_iterable(self.list(kind, matching) for kind in COLLECTIONS)
        return nlargest(limit, every, key=_age)

    def cancel(self, name: str) -> None:
        """Ask for a job's end; it goes by way of CANCELLING.

        Raises
        ------
        GoogleError
            If there is none, it has ended, Google refuses, or it cannot be reached.
        """
        self._call("POST", name, ":cancel", body={})

    def delete(self, name: str) -> None:
        """Remove a job that has ended.

        Raises
        ------
        GoogleError
            If Google refuses, or cannot be reached.
        """
        self._call("DELETE", name)

    def _call(
        self,
        method: str,
        name: str,
        verb: str = "",
        *,
        body: Mapping[str, Any] | None = None,
        patience: float = PATIENCE,
    ) -> dict[str, Any]:
        region = parse_name(name).region
        path = quote(name) + verb
        return self.session.call(
            method, "aiplatform", path, body=body, region=region, patience=patience
        )

    def _invalid(self, problem: str) -> GoogleError:
        return self.session.invalid("aiplatform", problem, region=self.region)

    def _try(self, collection: str, body: Mapping[str, Any]) -> dict[str, Any] | Unavailable:
        """Ask for a job once; what may do better later is returned."""
        path = f"projects/{quote(self.project, safe='')}/locations/{self.region}/{collection}"
        try:
            job = self.session.call(
                "POST", "aiplatform", path, body=body, region=self.region, patience=0
            )
        except Unavailable as problem:
            if problem.reason == QUOTA:
                raise GoogleError(str(problem), status=problem.status, reason=QUOTA) from None
            return problem
        except GoogleError as problem:
            if problem.reason != INVALID:
                raise
            return Unavailable(str(problem), status=problem.status, reason=INVALID)
        if not isinstance(job.get("name"), str):
            return Unavailable("google's answer to the job's creation does not name the job")
        # The job is there, whatever else is in the answer: what is not valid comes up with `get`.
        return {"name": job["name"]} if _mismatch(job) else job

    def _look(self, collection: str, launch_id: str) -> dict[str, Any] | None:
        """Look for a job that may have been created, more than once, as lists may be behind."""
        try:
            for delay in _LOOKS:
                if delay:
                    self.session.sleep(delay)
                found = self.find(collection, launch_id)
                if found:
                    return found
        except GoogleError as problem:
            kind = Unavailable if isinstance(problem, Unavailable) else GoogleError
            raise kind(
                f"the job may have been created, but the look-up failed ({problem}); run the same "
                "command again: it looks for the job first and never creates a second one",
                status=problem.status,
                reason=problem.reason,
            ) from problem
        return None

    def _only(
        self, collection: str, launch_id: str, known: dict[str, Any], *, most: int
    ) -> Created:
        """Return the one job of a launch; one that comes to light too late is not left running.

        Parameters
        ----------
        known
            The job that Google told of.
        most
            How many jobs there can be, as far as is known; lists may be behind.
        """
        there = {known["name"]: known}
        with suppress(GoogleError):  # the job exists, whatever else can be learned
            for delay in _LOOKS:
                if delay:
                    self.session.sleep(delay)
                there |= {job["name"]: job for job in self._labelled(collection, launch_id)}
                if len(there) >= most:
                    break
        oldest, *others = sorted(there.values(), key=_age)
        left = tuple(each["name"] for each in others if not self._end_duplicate(each["name"]))
        return Created(oldest, is_new=oldest["name"] == known["name"], duplicates=left)

    def _end_duplicate(self, name: str) -> bool:
        """Cancel a job, and return whether it runs no longer."""
        try:
            self.cancel(name)
        except GoogleError:
            with suppress(GoogleError):
                return has_ended(self.get(name))
            return False
        return True

    def _labelled(self, collection: str, launch_id: str) -> Iterator[dict[str, Any]]:
        """Go through a launch's jobs; an invalid one is not skipped, as it may be the launch's."""
        matching = f"labels.{LAUNCH_LABEL}={launch_id}"
        return self.list(collection, matching, skips_invalid=False)


def parse_name(name: str) -> Name:
    """Return the parts of a job's resource name.

    Raises
    ------
    DistlaunchError
        If it is none.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise DistlaunchError(
            f"{name!r} is not a job; expected projects/P/locations/R/customJobs/NUMBER"
        )
    return Name(**found.groupdict())


def state(job: Mapping[str, Any]) -> str:
    """Return a job's state without its prefix, as ``RUNNING``."""
    return str(job.get("state") or "UNSPECIFIED").removeprefix("JOB_STATE_")


def has_ended(job: Mapping[str, Any]) -> bool:
    """Whether a job is over, well or badly."""
    return state(job) in ENDED


def error(job: Mapping[str, Any]) -> str:
    """Return what Google says of a job's bad end, if it has said it by now, in one line."""
    told = job.get("error")
    message = told.get("message") if isinstance(told, dict) else None
    return " ".join(str(message).split()) if message else ""


def console_url(job: Mapping[str, Any], project: str) -> str:
    """Return the address of a job's page in Google's console."""
    name = parse_name(job["name"])
    return (
        f"https://console.cloud.google.com/agent-platform/locations/{name.region}/training/"
        f"{name.id}?project={project}"
    )


def _create_refused(refusal: GoogleError) -> CreateRefused:
    return CreateRefused(
        str(refusal),
        status=refusal.status,
        reason=refusal.reason,
        why=refusal.why,
        service=refusal.service,
    )


def _mismatch(job: object, path: str = "") -> str:
    """Return what is not as Google documents it in a job, with its path; nothing if it is valid."""
    problem = mismatch(job, JOB, path)
    if problem or not isinstance(job, dict):
        return problem
    place = f"{path}.name".removeprefix(".")
    if "name" not in job:
        return f"{place} is missing"
    if _NAME.fullmatch(job["name"]) is None:
        shown = json.dumps(job["name"][:_SHOWN])
        return f"{place}: expected projects/P/locations/R/customJobs/NUMBER, got {shown}"
    return ""


def _age(job: Mapping[str, Any]) -> tuple[str, str]:
    return str(job.get("createTime", "")), str(job.get("name", ""))
