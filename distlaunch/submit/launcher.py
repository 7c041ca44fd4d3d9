"""The story of a submit: a checked job and its image → a record → a job of Google's → its end.

A launch is never made twice by mistake. Its record is written before Google is asked, with an id
that the job carries as a label; what was cut off at any moment is found again and finished.
"""

from __future__ import annotations

import json
import platform
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from distlaunch import __version__
from distlaunch.checks.required_fields import raise_if_incomplete
from distlaunch.errors import CreateRefused, GoogleError
from distlaunch.job import vertex
from distlaunch.job.job_dir import change_job_dir
from distlaunch.submit import records
from distlaunch.submit.plan import fingerprint
from distlaunch.ui.events import Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from distlaunch.google.client import Session
    from distlaunch.google.follow import Follow
    from distlaunch.google.jobs import Jobs
    from distlaunch.image import ImagePlan
    from distlaunch.submit.plan import Order
    from distlaunch.submit.records import Record
    from distlaunch.ui.events import Event, Level, ShowMessage
    from distlaunch.ui.progress_view import Watch

SUCCEEDED = "SUCCEEDED"
ENDED_BADLY = 3  # the exit code for a job that ended in the cloud without success
DIGEST_COMES_LATER = "<digest known after the push>"

_NOT_FOUND = 404


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


def plan(order: Order, image: ImagePlan | None = None) -> Plan:
    """Find out what a submit would do.

    Parameters
    ----------
    order
        What is to be launched.
    image
        How the job's image comes to be, where that is known by now.

    Raises
    ------
    JobFileError
        If the job cannot be launched at all.
    DistlaunchError
        If the project's files or the image's registry cannot be read.
    """
    raise_if_incomplete(order)
    if image is None and vertex.needs_image(order.job):
        from distlaunch.image import plan_image

        image = plan_image(order.job, order.folder)
    return Plan(order, records.new_launch_id(order.job.name), image)


class Launched(NamedTuple):
    """A launch whose job Google has; its record is open until the launcher closes it."""

    record: Record
    job: Mapping[str, Any]


class Launcher:
    """Launches jobs from a project's folder, each once.

    Parameters
    ----------
    folder
        The project's folder, which keeps the records.
    jobs
        Google's jobs in the project and region where they are to be.
    see
        Who shows what happens.
    tell
        Shows a warning for each file that is not a valid record; None if that was done.
    """

    def __init__(
        self,
        folder: Path,
        jobs: Jobs,
        see: Callable[[Event], None],
        *,
        tell: ShowMessage | None = None,
    ) -> None:
        self._folder = folder
        self._records = records.Records(folder, tell)
        self._jobs = jobs
        self._see = see

    def launch(
        self, made: Plan, progress: Callable[[str], None], *, is_new: bool = False
    ) -> Launched:
        """Build and push the image and submit the job, or finish a launch of the same.

        Parameters
        ----------
        made
            What to do.
        progress
            Who shows how far the image is.
        is_new
            Whether to launch another, though a launch of the same was cut off.
        """
        image = _built(made.image, self._see, progress) if made.image else None
        content = made.order.content(image)

        def request(launch_id: str) -> dict[str, Any]:
            return made.order.request(launch_id, image)

        def record() -> Record:
            return _recorded(made, image, content)

        return self._launch(content, request, record, is_new=is_new)

    def again(self, job: dict[str, Any], *, is_new: bool = False) -> Launched:
        """Submit a job once more as it was, but with a job folder of its own.

        Parameters
        ----------
        job
            The job's resource.
        is_new
            Whether to start a new job, even if a resubmission of the same was interrupted.
        """
        inputs = _as_asked(job)
        if _in_new_folder(inputs, "ID") == inputs:
            self._tell(
                "this job names no output directory; if its program writes to a fixed path, the "
                "new job writes there too",
                "warning",
            )

        def request(launch_id: str) -> dict[str, Any]:
            labels = inputs.get("labels", {}) | {records.LAUNCH_LABEL: launch_id}
            return _in_new_folder(inputs, launch_id) | {"labels": labels}

        content = fingerprint(["again", job["name"]])

        def record() -> Record:
            return self._repeated(job, request, content)

        return self._launch(content, request, record, is_new=is_new)

    def close(self, record: Record) -> None:
        """Note that the command that launched a job has ended in order."""
        self._records.write(record.closed())

    def _launch(
        self,
        content: str,
        request: Callable[[str], dict[str, Any]],
        record: Callable[[], Record],
        *,
        is_new: bool,
    ) -> Launched:
        """Create a job of this content, or resume an interrupted launch of it."""
        with self._records.held():
            before = None if is_new else self._records.open_with(content)
            resumed = self._resumed(before, request(before.launch_id)) if before else None
            if resumed:
                return resumed
            fresh = record()
            return self._submitted(fresh, request(fresh.launch_id), may_exist=False)

    def _resumed(self, record: Record, body: Mapping[str, Any]) -> Launched | None:
        """Resume an interrupted launch; close its record if its job has ended or is gone."""
        from distlaunch.google.jobs import has_ended, state

        job = self._job_of(record)
        is_gone = job is None and record.resource is not None
        if is_gone or (job and has_ended(job)):
            outcome = f"has ended ({state(job)})" if job else "no longer exists"
            self._tell(
                f"the job of the interrupted launch {record.launch_id} {outcome}; "
                "starting a new one"
            )
            self.close(record.submitted(job["name"]) if job else record)
            return None
        self._tell(f"resuming interrupted launch {record.launch_id} (--new starts a new one)")
        if job is None:
            return self._submitted(record, body, may_exist=True)
        record = record.submitted(job["name"])
        self._records.write(record)
        return Launched(record, job)

    def _job_of(self, record: Record) -> dict[str, Any] | None:
        """Return a launch's job, None if Google has none or none is listed yet."""
        if record.resource is None:
            return self._jobs.find(record.collection, record.launch_id)
        try:
            return self._jobs.get(record.resource)
        except GoogleError as problem:
            if problem.status != _NOT_FOUND:
                raise
            return None

    def _submitted(self, record: Record, body: Mapping[str, Any], *, may_exist: bool) -> Launched:
        self._records.write(record)
        try:
            created = self._jobs.create(record.collection, body, may_exist=may_exist)
        except KeyboardInterrupt:
            self._tell(
                "interrupted while creating the job, which may exist; run the same command again "
                "to find out and finish the launch",
                "warning",
            )
            raise
        except CreateRefused:
            self.close(record)
            raise
        if not created.is_new:
            self._tell(f"job {record.launch_id} already exists; not creating another")
        for name in created.duplicates:
            self._tell(
                f"a second job of this launch could not be cancelled; run "
                f"'distlaunch cancel {name}'",
                "warning",
            )
        record = record.submitted(created.job["name"])
        self._records.write(record)
        return Launched(record, created.job)

    def _repeated(
        self, job: Mapping[str, Any], request: Callable[[str], dict[str, Any]], content: str
    ) -> Record:
        """Return the record of a job's repetition."""
        from distlaunch.google.jobs import parse_name
        from distlaunch.job.names import job_name

        name = job_name(job.get("displayName") or parse_name(job["name"]).id)
        launch_id = records.new_launch_id(name)
        body = request(launch_id)
        return _of_this_moment(
            self._folder,
            launch_id=launch_id,
            name=name,
            project=self._jobs.project,
            region=self._jobs.region,
            collection=parse_name(job["name"]).collection,
            content=content,
            request=records.redacted(body),
            job_dir=_output_directory(body),
            endpoint=self._jobs.session.endpoint,
        )

    def _tell(self, text: str, level: Level = "info") -> None:
        self._see(Notice(text, level))


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
    summary = _summary(session, record, watch)
    if summary:
        watch.finish(summary)
    elif record.job_dir:
        watch.see(Notice(f"done; the job's folder is {record.job_dir}"))
    return 0


def _summary(session: Session, record: Record, watch: Watch) -> dict[str, Any] | None:
    """Return what the job's program left behind of itself, if it left that."""
    from distlaunch.google import storage

    if record.job_dir is None:
        return None
    try:
        found = json.loads(storage.read(session, f"{record.job_dir}/summary.json") or b"null")
    except (RecursionError, ValueError):
        return None
    except GoogleError as problem:  # the job has ended well, whoever may read of it
        watch.see(Notice(f"its summary cannot be read: {problem}", "warning"))
        return None
    return found if isinstance(found, dict) else None


def _built(image: ImagePlan, see: Callable[[Event], None], progress: Callable[[str], None]) -> str:
    from distlaunch.image import execute_plan

    return execute_plan(image, see, progress=progress).uri


def _recorded(made: Plan, image: str | None, content: str) -> Record:
    order, job = made.order, made.order.job
    return _of_this_moment(
        order.folder,
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
    )


def _of_this_moment(folder: Path, **known: Any) -> Record:
    """Return a record, with what is told by the moment that it is made in."""
    commit, is_dirty = records.commit_of(folder)
    versions = {"distlaunch": __version__, "python": platform.python_version()}
    return records.Record(
        **known, commit=commit, is_dirty=is_dirty, versions=versions, time=records.now()
    )


def _job_spec(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a job that has the pools and the output directory."""
    found: dict[str, Any] = body.get("jobSpec") or body.get("trialJobSpec") or {}
    return found


def _output_directory(body: Mapping[str, Any]) -> str | None:
    found = _job_spec(body).get("baseOutputDirectory", {}).get("outputUriPrefix")
    return found.rstrip("/") if found else None


def _as_asked(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a job is said by who makes it."""
    asked = ("displayName", "jobSpec", "labels", "encryptionSpec", "studySpec", "maxTrialCount")
    more = ("parallelTrialCount", "maxFailedTrialCount", "trialJobSpec")
    return {name: job[name] for name in (*asked, *more) if name in job}


def _in_new_folder(inputs: Mapping[str, Any], launch_id: str) -> dict[str, Any]:
    """Return a copy of a job's inputs that writes to a new folder wherever it names its folder."""
    body = deepcopy(dict(inputs))
    before = (inputs.get("labels") or {}).get(records.LAUNCH_LABEL)

    def moved(folder: str) -> str:
        return _new_folder(folder, before, launch_id) if folder.startswith("gs://") else folder

    spec = _job_spec(body)
    directory = _output_directory(body)
    if directory:
        spec["baseOutputDirectory"]["outputUriPrefix"] = moved(directory)
    for pool in spec.get("workerPoolSpecs", []):
        for program in filter(None, (pool.get("containerSpec"), pool.get("pythonPackageSpec"))):
            for field in program.keys() & {"command", "args"}:
                program[field] = list(change_job_dir(program[field], moved))
    return body


def _new_folder(folder: str, before: str | None, launch_id: str) -> str:
    """Return the folder with the launch id replaced, or the launch's folder below it."""
    bucket, *path = folder.removeprefix("gs://").rstrip("/").split("/")
    if before in path:
        path = [launch_id if part == before else part for part in path]
    else:
        path.append(launch_id)
    return "gs://" + "/".join([bucket, *path])
