"""Vertex AI's job service: custom jobs and hyperparameter tuning jobs.

https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.customJobs
"""

from __future__ import annotations

import base64
import json
import random
import re
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

from distlaunch.emulator.service import rules
from distlaunch.emulator.service.answers import Answer, Refused, invalid_payload
from distlaunch.emulator.service.job_filters import job_filter
from distlaunch.emulator.service.parsing import as_json, parse, with_numbers
from distlaunch.emulator.service.quotas import exceeded, over_quota, taken
from distlaunch.emulator.service.tuning_rules import tuning_job_problems
from distlaunch.emulator.store import ENDED, UnknownJob, project_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.emulator.logs import Logs
    from distlaunch.emulator.service.answers import Request
    from distlaunch.emulator.store import Collection, Store

MOST_ON_A_PAGE = 100

_COMMON_OPTIONS = re.compile(
    r"\$?(alt|fields|key|prettyPrint|quotaUser|access_token|callback|\.?xgafv)"
)
_LIST_OPTIONS = ("filter", "pageSize", "pageToken", "readMask")
_KINDS: dict[Collection, str] = {
    "customJobs": "CustomJob",
    "hyperparameterTuningJobs": "HyperparameterTuningJob",
}


class Runner(Protocol):
    """What runs jobs; see `JobRunner`."""

    def start(self, name: str) -> None: ...

    def cancel(self, name: str) -> None: ...


class JobService:
    """Makes, tells of, cancels and deletes jobs.

    Parameters
    ----------
    store
        Where the jobs are.
    logs
        Where they will write.
    lives
        What runs them.
    limits
        Of quota metrics, where there are any.
    """

    def __init__(
        self, store: Store, logs: Logs, lives: Runner, limits: Mapping[str, int] | None = None
    ) -> None:
        self._store = store
        self._logs = logs
        self._lives = lives
        self._lock = threading.Lock()
        self._operations: dict[str, dict[str, Any]] = {}
        self._limits = limits or {}
        self._taken: dict[str, Counter[str]] = {}  # by the jobs that had not ended at last

    def create(
        self,
        request: Request,
        project: str,
        location: str,
        collection: Collection,
        *,
        is_over_quota: bool = False,
    ) -> Answer:
        """Take a job in and start it.

        Raises
        ------
        Refused
            If it is none that Vertex AI takes.
        """
        _check_options(request.options, ())
        rules.check_location(location)
        message = parse(collection, request.json())
        tell = tuning_job_problems if collection != "customJobs" else rules.custom_job_problems
        refusal = rules.refusal(tell(message, location))
        if refusal is None and is_over_quota:
            refusal = over_quota(message)
        if refusal is not None:
            raise refusal
        job = self._take_in(project, location, collection, message)
        self._logs.add_job(_id(job), project)
        self._lives.start(job["name"])
        return Answer(_told(job, collection, request))

    def get(self, request: Request, name: str, collection: Collection) -> Answer:
        """Tell of a job.

        Raises
        ------
        Refused
            If there is none of this name.
        """
        _check_options(request.options, ())
        return Answer(_told(self._job(name, collection), collection, request))

    def list(self, request: Request, project: str, location: str, collection: Collection) -> Answer:
        """Tell of the jobs of a project and location page by page, the newest first.

        Raises
        ------
        Refused
            If the options cannot be.
        """
        options = request.options
        _check_options(options, _LIST_OPTIONS)
        rules.check_location(location)
        is_asked_for = job_filter(options.get("filter", ""))
        before = _page_token(options)
        jobs = [
            job
            for job in self._store.list(project, location, collection)
            if is_asked_for(job) and (before is None or job["createTime"] < before)
        ]
        size = _page_size(options)
        page = [_told(job, collection, request) for job in jobs[:size]]
        answer: dict[str, Any] = {collection: _masked(page, options)} if page else {}
        if len(jobs) > size:
            token = [options.get("filter", ""), jobs[size - 1]["createTime"]]
            answer["nextPageToken"] = base64.urlsafe_b64encode(json.dumps(token).encode()).decode()
        return Answer(answer)

    def cancel(self, request: Request, name: str, collection: Collection) -> Answer:
        """Have a job end; it ends some time later.

        Raises
        ------
        Refused
            If there is none, or it has ended.
        """
        _check_options(request.options, ())
        request.json()
        job = self._job(name, collection)
        if job["state"] in ENDED:
            raise _precondition(job, collection, "cannot be cancelled")
        self._lives.cancel(job["name"])
        return Answer({})

    def delete(self, request: Request, name: str, collection: Collection) -> Answer:
        """Forget a job that has ended, and tell of the operation that did.

        Raises
        ------
        Refused
            If there is none, or it goes on.
        """
        _check_options(request.options, ())
        job = self._job(name, collection)
        if job["state"] not in ENDED:
            raise _precondition(job, collection, "cannot be deleted; cancel it first")
        try:
            self._store.delete(name)
        except UnknownJob:  # somebody else was quicker
            raise _not_found(name, collection) from None
        return Answer(self._deleted(job["name"]))

    def operation(self, name: str) -> Answer:
        """Tell of an operation; all are done at once.

        Raises
        ------
        Refused
            If there is none of this name.
        """
        with self._lock:
            found = self._operations.get(_numbered(name))
        if found is None:
            raise Refused(404, f"Operation {name} is not found.")
        return Answer(found)

    def _take_in(
        self, project: str, location: str, collection: Collection, message: Any
    ) -> dict[str, Any]:
        """Keep a job, if there is quota for it beside the others that have not ended."""
        wanted = taken(message)
        with self._lock:
            refused = exceeded(wanted, self._used(project, location), self._limits)
            if refused is not None:
                raise refused
            job = self._store.create(project, location, collection, as_json(message))
            if self._limits:
                self._taken[job["name"]] = wanted
        return job

    def _used(self, project: str, location: str) -> Counter[str]:
        """Add up what jobs that have not ended take, and forget the others."""
        used = Counter[str]()
        here = f"projects/{project_number(project)}/locations/{location}/"
        for name in [each for each in self._taken if each.startswith(here)]:
            if self._has_ended(name):
                del self._taken[name]
            else:
                used += self._taken[name]
        return used

    def _has_ended(self, name: str) -> bool:
        try:
            return self._store.get(name)["state"] in ENDED
        except UnknownJob:
            return True

    def _deleted(self, job_name: str) -> dict[str, Any]:
        parent = "/".join(job_name.split("/")[:4])
        number = random.randrange(10**18, 9 * 10**18)  # noqa: S311 - no secret
        now = self._store.now()
        operation = {
            "name": f"{parent}/operations/{number}",
            "metadata": {
                "@type": "type.googleapis.com/google.cloud.aiplatform.v1.DeleteOperationMetadata",
                "genericMetadata": {"createTime": now, "updateTime": now},
            },
            "done": True,
            "response": {"@type": "type.googleapis.com/google.protobuf.Empty"},
        }
        with self._lock:
            self._operations[operation["name"]] = operation  # type: ignore[index]
        return operation

    def _job(self, name: str, collection: Collection) -> dict[str, Any]:
        rules.check_location(name.split("/")[3])
        try:
            return self._store.get(name)
        except UnknownJob:
            raise _not_found(name, collection) from None


def _told(job: dict[str, Any], collection: Collection, request: Request) -> dict[str, Any]:
    """Return a job as a client asks for it."""
    wants_numbers = "enum-encoding=int" in request.options.get("$alt", "")
    return with_numbers(collection, job) if wants_numbers else job


def _check_options(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    wrong = [name for name in options if name not in known and not _COMMON_OPTIONS.fullmatch(name)]
    if wrong:
        raise invalid_payload(
            *(
                f'Unknown name "{name}": Cannot bind query parameter. '
                f"Field '{name}' could not be found in request message."
                for name in wrong
            )
        )


def _page_size(options: Mapping[str, str]) -> int:
    text = options.get("pageSize", "0")
    if not re.fullmatch(r"-?\d{1,9}", text, re.ASCII):
        raise invalid_payload(f"Invalid value at 'page_size' (TYPE_INT32), \"{text}\"")
    if int(text) < 0:
        raise Refused(400, "The page size must not be negative.")
    return min(int(text) or MOST_ON_A_PAGE, MOST_ON_A_PAGE)


def _page_token(options: Mapping[str, str]) -> str | None:
    """Return the time of the last job on the page before."""
    if not options.get("pageToken"):
        return None
    try:
        asked, before = json.loads(base64.urlsafe_b64decode(options["pageToken"]))
    except (ValueError, TypeError):
        raise Refused(400, "The page token is invalid.") from None
    if asked != options.get("filter", "") or not isinstance(before, str):
        raise Refused(400, "The page token is not of this request: its filter is another.")
    return before


def _masked(page: list[dict[str, Any]], options: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return of each job what the read mask names, by its fields of the first level."""
    mask = options.get("readMask", "")
    if mask in ("", "*"):
        return page
    wanted = {
        re.sub(r"_([a-z])", lambda each: each[1].upper(), one.split(".")[0].strip())
        for one in mask.split(",")
    }
    return [{key: value for key, value in job.items() if key in wanted} for job in page]


def _precondition(job: dict[str, Any], collection: Collection, what: str) -> Refused:
    text = f'The {_KINDS[collection]} "{job["name"]}" is in state {job["state"]} and {what}.'
    return Refused(400, text, status="FAILED_PRECONDITION")


def _not_found(name: str, collection: Collection) -> Refused:
    return Refused(404, f'The {_KINDS[collection]} "{name}" does not exist.')


def _id(job: dict[str, Any]) -> str:
    return str(job["name"]).rpartition("/")[2]


def _numbered(name: str) -> str:
    word, project, rest = name.split("/", 2)
    return f"{word}/{project_number(project)}/{rest}"
