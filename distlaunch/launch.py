"""The story of a submit: a job and its image → a record → a job of Google's → its end.

A launch is never made twice by mistake. Its record is written before Google is asked, with an id
that the job carries as a label; what was cut off at any moment is found again and finished.
"""

from __future__ import annotations

import json
import platform
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from distlaunch import __version__, records
from distlaunch.errors import DistlaunchError
from distlaunch.events import Notice
from distlaunch.job import vertex
from distlaunch.order import fingerprint, refuse_what_cannot_be

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from distlaunch.events import Event
    from distlaunch.google.follow import Follow
    from distlaunch.google.jobs import Jobs
    from distlaunch.google.session import Session
    from distlaunch.image import ImagePlan
    from distlaunch.order import Order
    from distlaunch.records import Record, Records
    from distlaunch.watch import Watch

SUCCEEDED = "SUCCEEDED"
ENDED_BADLY = 3  # the exit code for a job that ended in the cloud without success
DIGEST_COMES_LATER = "<digest known after the push>"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a submit is going to do.

    Parameters
    ----------
    order
        What it does it for.
    launch_id
        The id of the launch, if it is a new one.
    image
        How the job's image comes to be, None where every pool names its own.
    """

    order: Order
    launch_id: str
    image: ImagePlan | None

    @property
    def collection(self) -> vertex.Collection:
        """Where Google keeps such jobs."""
        return vertex.collection(self.order.job)

    @property
    def request(self) -> dict[str, Any]:
        """The request, with the image's digest if that is known by now."""
        return self.order.request(self.launch_id, self._image_as_known())

    def _image_as_known(self) -> str | None:
        if self.image is None:
            return None
        return self.image.uri or f"{self.image.repository}@{DIGEST_COMES_LATER}"


def plan(order: Order, *, check: bool = True) -> Plan:
    """Find out what a submit would do, and see that Google would understand its request.

    Parameters
    ----------
    order
        What is to be launched.
    check
        Whether to hold the request against Google's messages.

    Raises
    ------
    JobFileError
        If the job cannot be launched, or its request is not one of Google's.
    DistlaunchError
        If the project's files or the image's registry cannot be read.
    """
    from distlaunch.google import messages

    refuse_what_cannot_be(order)
    with _meanwhile(messages.preload):  # it takes as long as hashing the project's files
        image = None
        if vertex.needs_image(order.job):
            from distlaunch.image import plan as plan_image

            image = plan_image(order.job, order.folder)
    made = Plan(order, records.new_launch_id(order.job.name), image)
    if check:
        messages.check(made.collection, made.request)
    return made


class Launched(NamedTuple):
    """A launch whose job Google has; its record is open until `close` is called."""

    record: Record
    job: Mapping[str, Any]


def carry_out(
    made: Plan,
    jobs: Jobs,
    see: Callable[[Event], None],
    progress: Callable[[str], None],
    *,
    is_new: bool = False,
) -> Launched:
    """Build and push the image and submit the job, or finish a launch of the same that was cut off.

    Parameters
    ----------
    made
        What to do.
    jobs
        Google's jobs in the order's project and region.
    see, progress
        Who shows what happens, and how far it is.
    is_new
        Whether to launch another, though a launch of the same was cut off.
    """
    order = made.order
    image = _built(made, see, progress)
    kept = records.Records(order.folder)
    with kept.held():
        content = order.content(image)
        before = None if is_new else kept.open_with(content)
        if before:
            body = order.request(before.launch_id, image)
            return _continued(before, body, jobs, kept, see)
        record = _new_record(made, image, content)
        return _submitted(record, order.request(made.launch_id, image), jobs, kept, see)


def again(
    record: Record, folder: Path, jobs: Jobs, see: Callable[[Event], None], *, is_new: bool = False
) -> Launched:
    """Submit a job that was submitted before once more, as Google has it.

    Parameters
    ----------
    record
        The launch that is repeated.
    folder
        The project's folder.
    jobs
        Google's jobs in the record's project and region.
    see
        Who shows what happens.
    is_new
        Whether to launch another, though a repetition of the same was cut off.

    Raises
    ------
    GoogleError
        If Google does not have the job any more.
    """
    request = _as_asked(jobs.get(_resource(record)))
    kept = records.Records(folder)
    with kept.held():
        content = fingerprint(["again", record.launch_id])
        before = None if is_new else kept.open_with(content)
        launch_id = before.launch_id if before else records.new_launch_id(record.name)
        body = _moved(request, record.launch_id, launch_id)
        if before:
            return _continued(before, body, jobs, kept, see)
        fresh = replace(
            record,
            launch_id=launch_id,
            content=content,
            request=records.redacted(body),
            job_dir=_moved(record.job_dir, record.launch_id, launch_id),
            resource=None,
            is_open=True,
            time=records.now(),
        )
        return _submitted(fresh, body, jobs, kept, see)


def attend(record: Record, session: Session, follow: Follow, watch: Watch) -> int:
    """Show what happens to a job until it has ended, and return the exit code.

    Parameters
    ----------
    record
        The launch.
    session
        What Google is asked through.
    follow
        Its job's events.
    watch
        Who shows them.
    """
    from distlaunch.google.jobs import state

    watch.show(follow)
    if state(follow.job) != SUCCEEDED:
        return ENDED_BADLY
    summary = _summary(session, record)
    if summary:
        watch.finish(summary)
    elif record.job_dir:
        watch.see(Notice(f"done; the job's folder is {record.job_dir}"))
    return 0


def _summary(session: Session, record: Record) -> dict[str, Any] | None:
    """Return what the job's program left behind of itself, if it left that."""
    from distlaunch.google import storage

    if record.job_dir is None:
        return None
    try:
        found = json.loads(storage.read(session, f"{record.job_dir}/summary.json") or b"null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def close(record: Record, folder: Path) -> None:
    """Note that the command that launched a job has ended in order: the launch is no open one."""
    records.Records(folder).write(record.closed())


def _built(made: Plan, see: Callable[[Event], None], progress: Callable[[str], None]) -> str | None:
    if made.image is None:
        return None
    from distlaunch.image import carry_out as build

    return build(made.image, see, progress=progress).uri


def _new_record(made: Plan, image: str | None, content: str) -> Record:
    order, job = made.order, made.order.job
    commit, is_dirty = records.commit_of(order.folder)
    return records.Record(
        launch_id=made.launch_id,
        name=job.name,
        project=str(job.project),
        region=str(job.region),
        collection=made.collection,
        content=content,
        request=records.redacted(order.request(made.launch_id, image)),
        image=image or job.image.uri,
        job_dir=order.job_dir_of(made.launch_id),
        endpoint=order.endpoint,
        commit=commit,
        is_dirty=is_dirty,
        versions={"distlaunch": __version__, "python": platform.python_version()},
        time=records.now(),
    )


def _continued(
    record: Record,
    body: Mapping[str, Any],
    jobs: Jobs,
    kept: Records,
    see: Callable[[Event], None],
) -> Launched:
    """Go on with a launch that was cut off, wherever that was."""
    see(
        Notice(
            f"going on with the launch {record.launch_id} of the same content, which was cut off "
            "(--new starts another)"
        )
    )
    if record.resource:
        return Launched(record, jobs.get(record.resource))
    return _submitted(record, body, jobs, kept, see, may_exist=True)


def _submitted(
    record: Record,
    body: Mapping[str, Any],
    jobs: Jobs,
    kept: Records,
    see: Callable[[Event], None],
    *,
    may_exist: bool = False,
) -> Launched:
    kept.write(record)
    try:
        created = jobs.create(record.collection, body, may_exist=may_exist)
    except KeyboardInterrupt:
        see(
            Notice(
                "interrupted while Google was asked: the job may be there or not; the next "
                "'distlaunch submit' of the same finds out and finishes it",
                "warning",
            )
        )
        raise
    except DistlaunchError as problem:
        if _is_refusal(problem):
            kept.write(record.closed())
        raise
    if not created.is_new:
        see(Notice(f"Google has the job of launch {record.launch_id} by now; none was made anew"))
    record = record.submitted(created.job["name"])
    kept.write(record)
    return Launched(record, created.job)


def _is_refusal(problem: DistlaunchError) -> bool:
    """Whether Google has said no, so that there is nothing to go on with."""
    status = getattr(problem, "status", 0)
    return 400 <= status < 500


def _resource(record: Record) -> str:
    if record.resource is None:
        raise DistlaunchError(
            f"{record.launch_id}: it is not known whether Google has this job; "
            "'distlaunch submit' finds out and finishes it"
        )
    return record.resource


def _as_asked(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a job is said by who makes it."""
    asked = ("displayName", "jobSpec", "labels", "encryptionSpec", "studySpec", "maxTrialCount")
    more = ("parallelTrialCount", "maxFailedTrialCount", "trialJobSpec")
    return {name: job[name] for name in (*asked, *more) if name in job}


def _moved(value: Any, before: str, after: str) -> Any:
    """Return a request, or a part of it, with another launch's id wherever one stands in it."""
    if isinstance(value, str):
        return value.replace(before, after)
    if isinstance(value, list):
        return [_moved(each, before, after) for each in value]
    if isinstance(value, dict):
        return {key: _moved(each, before, after) for key, each in value.items()}
    return value


class _meanwhile:  # noqa: N801 - read as the word it is
    """Have something done beside what is done while this is entered."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._thread = threading.Thread(target=work, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join()
