"""The story of a submit: a checked job and its image → a record → a job at Google → its end.

At most one job of a launch is alive. Its record is written before the call that creates the job,
with an id that the job carries as a label; a launch that was interrupted is found by it and
resumed. Several commands may follow one launch, so a launch is moved to another region under a
lock, by the record as it is on the disk then.
"""

from __future__ import annotations

import platform
import time
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from distlaunch import __version__, files, timestamps
from distlaunch.engines.vertex.jobs import Jobs, JobState, has_ended, is_stockout, parse_name, state
from distlaunch.errors import CreateRefused, DistlaunchError, EmulatorStopped, GoogleError
from distlaunch.events import JobFailed, Notice
from distlaunch.exit_codes import EXIT_JOB_FAILED
from distlaunch.job.launch import LAUNCH_LABEL, fingerprint, new_launch_id
from distlaunch.redaction import redact
from distlaunch.source_version import commit_of
from distlaunch.submit.records import Record, Records
from distlaunch.submit.resubmission import (
    input_fields,
    output_directory,
    override_inputs,
    with_new_folder,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from distlaunch.engines.vertex.client import Session
    from distlaunch.engines.vertex.follow import JobFollower
    from distlaunch.events import Event, Level, ShowMessage
    from distlaunch.submit.plan import SubmitPlan
    from distlaunch.ui.progress_view import ProgressView


class Launched(NamedTuple):
    """A launch whose job Google has; its record is open until the launcher closes it."""

    record: Record
    job: Mapping[str, Any]
    request: Callable[[str], dict[str, Any]]  # launch id → the body of the call
    next_regions: tuple[str, ...] = ()  # to which it may be moved


class Launcher:
    """Launches jobs from a project's folder, each once.

    Attributes
    ----------
    jobs : Jobs
        Those of the project, and of the region of the last launch.

    `show_message` prints a warning for each file that is not a valid record.
    """

    def __init__(
        self,
        folder: Path,
        jobs: Jobs,
        on_event: Callable[[Event], None],
        *,
        show_message: ShowMessage | None = None,
    ) -> None:
        self._folder = folder
        self._records = Records(folder, show_message)
        self.jobs = jobs
        self._on_event = on_event

    def launch(
        self, plan: SubmitPlan, progress: Callable[[str], None], *, is_new: bool = False
    ) -> Launched:
        """Build and push the image and submit the job, or resume an identical launch."""
        launch, image = plan.launch, None
        if plan.image:
            from distlaunch.image import execute_plan

            image = execute_plan(plan.image, self._on_event, progress=progress)
        return self._launch(
            lambda launch_id: launch.request(launch_id, image),
            launch_id=plan.launch_id,
            name=launch.job.name,
            collection=plan.collection,
            content=launch.fingerprint(image),
            image=image or launch.job.image.uri,
            is_new=is_new,
            regions=(self.jobs.region, *launch.next_regions),
        )

    def resubmit(
        self,
        job: Mapping[str, Any],
        *,
        overrides: tuple[str, ...] = (),
        program_args: tuple[str, ...] = (),
        is_new: bool = False,
    ) -> Launched:
        """Submit a job again, with a new job folder, overrides and more arguments."""
        from distlaunch.job.model import job_name

        inputs, parts = input_fields(job), parse_name(job["name"])
        if overrides or program_args:
            inputs = override_inputs(inputs, overrides, program_args)
        if with_new_folder(inputs, "ID") == inputs:
            self._show(
                "this job names no output directory; if its program writes to a fixed path, the "
                "new job writes there too",
                "warning",
            )

        def request(launch_id: str) -> dict[str, Any]:
            labels = inputs.get("labels", {}) | {LAUNCH_LABEL: launch_id}
            return with_new_folder(inputs, launch_id) | {"labels": labels}

        name = job_name(inputs.get("displayName") or parts.id)
        return self._launch(
            request,
            launch_id=new_launch_id(name),
            name=name,
            collection=parts.collection,
            content=fingerprint(["again", job["name"], overrides, program_args]),
            is_new=is_new,
        )

    def cancel_to_move(self, launched: Launched) -> None:
        """Cancel a job that is to be moved to the next region, unless it has started by now.

        The record has the intention, in case this command is killed before the job has ended.
        """
        record, name = launched.record, str(launched.record.resource)
        if not state(self.jobs.get(name)).is_before_running:
            return
        with self._records.lock():
            self._records.update(record, is_moving=True)
        self._show(f"the job has not started in {record.region}: cancelling it")
        try:
            self.jobs.cancel(name)
        except GoogleError as error:
            # Where it is still waiting, the user may cancel it later, and then it must not move.
            if state(self.jobs.get(name)).is_before_running:
                with self._records.lock():
                    self._records.update(record, is_moving=False)
            self._show(f"the job is not moved, as it cannot be cancelled: {error}", "warning")

    def move(self, launched: Launched, job: Mapping[str, Any]) -> Launched | None:
        """Submit a launch again in its next region, if its job has ended without having started.

        If another command has moved it, that launch is returned; None if it is not to be moved.
        """
        if not launched.next_regions:
            return None
        with self._records.lock():
            last = self._records.current(launched.record)
            successor = self._records.find_moved(last.launch_id)
            if successor:
                return self._join(launched, successor)
            if not _is_to_be_moved(last, job):
                return None
            self._show(
                f"no machines in {last.region}; moving the job to {launched.next_regions[0]}",
                "warning",
            )
            return self._create_in_next_region(launched, last)

    def close(self, record: Record) -> None:
        """Note that a launch is over: its job has ended, or the user leaves it running."""
        self._note(record, is_open=False)

    def note_cancelled(self, record: Record) -> None:
        """Note that the user cancels a job, so that no command moves it."""
        self._records.note_cancelled(record)

    def _join(self, launched: Launched, successor: Record) -> Launched | None:
        """Follow the launch that another command has moved, to where it is now."""
        for _ in launched.next_regions:
            successor = self._records.find_moved(successor.launch_id) or successor
        self.jobs = Jobs(self.jobs.session, self.jobs.project, successor.region)
        rest = _regions_after(successor.region, launched.next_regions)
        moved = launched._replace(record=successor, next_regions=rest)
        job = self._find_job(successor)
        if job:
            return moved._replace(job=job)
        if not successor.is_open or successor.resource:
            return None  # refused, or deleted since
        body = launched.request(successor.launch_id)
        return self._create(moved, body, may_exist=True)  # that command was killed

    def _create_in_next_region(self, launched: Launched, last: Record) -> Launched:
        region, *others = launched.next_regions
        self.jobs = Jobs(self.jobs.session, self.jobs.project, region)
        launch_id = new_launch_id(last.name)
        body = launched.request(launch_id)
        record = replace(
            last,
            launch_id=launch_id,
            region=region,
            request=redact(body),
            job_dir=output_directory(body),
            resource=None,
            is_moving=False,
            moved_from=last.launch_id,
            time=timestamps.format(time.time()),
        )
        moved = launched._replace(record=record, next_regions=tuple(others))
        try:
            return self._create(moved, body, may_exist=False)
        finally:
            self.close(last)

    def _note(self, record: Record, **changes: Any) -> None:
        """Change a record; only the next command needs it, so a failure is a warning."""
        try:
            self._records.update(record, **changes)
        except DistlaunchError as error:
            self._show(str(error), "warning")

    def _launch(
        self,
        request: Callable[[str], dict[str, Any]],
        *,
        launch_id: str,
        is_new: bool,
        regions: tuple[str, ...] = (),
        **values: Any,
    ) -> Launched:
        """Create a job of this content, or resume an interrupted launch of it.

        `request` makes the body of the call from a launch id, `regions` are all that may be tried;
        `values` are fields of the record.
        """
        first = self.jobs
        with self._records.lock():
            unfinished = None if is_new else self._records.find_unfinished(values["content"])
            if unfinished:
                region = unfinished.region
                self.jobs = Jobs(first.session, first.project, region)
                rest = _regions_after(region, regions)
                resumed = self._resume(Launched(unfinished, {}, request, rest))
                if resumed:
                    return resumed
                self.jobs = first
            body = request(launch_id)
            record = Record(
                **values,
                launch_id=launch_id,
                project=self.jobs.project,
                region=self.jobs.region,
                request=redact(body),
                job_dir=output_directory(body),
                endpoint=self.jobs.session.endpoint,
                commit=commit_of(self._folder),
                versions={"distlaunch": __version__, "python": platform.python_version()},
                time=timestamps.format(time.time()),
            )
            launched = Launched(record, {}, request, regions[1:])
            return self._create(launched, body, may_exist=False)

    def _resume(self, launched: Launched) -> Launched | None:
        """Resume an interrupted launch; close its record if its job has ended or is gone."""
        record = launched.record
        with job_goes_on(record):
            job = self._find_job(record)
        is_gone = job is None and record.resource is not None
        waits_for_move = job and launched.next_regions and _is_to_be_moved(record, job)
        if is_gone or (job and has_ended(job) and not waits_for_move):
            outcome = f"has ended ({state(job)})" if job else "no longer exists"
            self._show(
                f"the job of the interrupted launch {record.launch_id} {outcome}; "
                "starting a new one"
            )
            self._note(record, is_open=False, resource=job["name"] if job else record.resource)
            return None
        self._show(f"resuming interrupted launch {record.launch_id} (--new starts a new one)")
        if job is None:
            body = launched.request(record.launch_id)
            return self._create(launched, body, may_exist=True)
        return self._note_job(launched, job)

    def _find_job(self, record: Record) -> dict[str, Any] | None:
        """Return a launch's job, None if Google has none or none is listed yet."""
        if record.resource is None:
            return self.jobs.find(record.collection, record.launch_id)
        try:
            return self.jobs.get(record.resource)
        except GoogleError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    def _create(self, launched: Launched, body: Mapping[str, Any], *, may_exist: bool) -> Launched:
        record = launched.record
        try:
            self._records.write(record)
        except DistlaunchError as error:
            raise DistlaunchError(f"{error}; nothing was submitted") from None
        try:
            created = self.jobs.create(record.collection, body, may_exist=may_exist)
        except KeyboardInterrupt:
            self._show(
                "interrupted while creating the job, which may exist; run the same command again "
                "to find out and finish the launch",
                "warning",
            )
            raise
        except CreateRefused:
            self.close(record)
            raise
        if not created.is_new:
            self._show(f"job {record.launch_id} already exists; not creating another")
        for name in created.duplicates:
            self._show(
                f"a second job of this launch could not be cancelled; run "
                f"'distlaunch cancel {name}'",
                "warning",
            )
        return self._note_job(launched, created.job)

    def _note_job(self, launched: Launched, job: Mapping[str, Any]) -> Launched:
        self._note(launched.record, resource=job["name"])
        record = replace(launched.record, resource=job["name"])
        return launched._replace(record=record, job=job)

    def _show(self, text: str, level: Level = "info") -> None:
        self._on_event(Notice(text, level))


@contextmanager
def job_goes_on(record: Record) -> Iterator[None]:
    """Add to an error what becomes of the job, whose launch stays open."""
    try:
        yield
    except EmulatorStopped:
        raise
    except GoogleError as error:
        raise error.with_text(
            f"{error}; the job may still be running: run the same command again to follow it, or "
            f"'distlaunch cancel {record.launch_id}'"
        ) from error


def follow_to_end(
    launched: Launched, launcher: Launcher, follower: JobFollower, view: ProgressView
) -> None:
    """Show a job's events until it has ended; one that does not start is cancelled to be moved."""
    with job_goes_on(launched.record):
        view.stream(follower)
        if follower.is_stalled:
            launcher.cancel_to_move(launched)
            view.stream(follower)


def show_end(launched: Launched, jobs: Jobs, job: Mapping[str, Any], view: ProgressView) -> int:
    """Show how a job has ended, and return the exit code."""
    record = launched.record
    if state(job) is not JobState.SUCCEEDED:
        show_failure(jobs, job, view)
        return EXIT_JOB_FAILED
    summary = _read_summary(jobs.session, record, view)
    if summary:
        view.summarise(summary)
    elif record.job_dir:
        view.handle(Notice(f"done; the job's folder is {record.job_dir}"))
    return 0


def show_failure(jobs: Jobs, job: Mapping[str, Any], view: ProgressView) -> None:
    """Show the first failure of a job that has failed."""
    from distlaunch.engines.vertex.failure import find_failure

    report = find_failure(jobs, job)
    if report:
        view.handle(JobFailed(report, shows_lines=True))


def _read_summary(session: Session, record: Record, view: ProgressView) -> dict[str, Any] | None:
    """Return the job's ``summary.json``, None if there is none that can be read."""
    from distlaunch.engines.vertex import storage

    if record.job_dir is None:
        return None
    try:
        return files.parse_object(storage.read(session, f"{record.job_dir}/summary.json") or b"")
    except ValueError:
        return None
    except GoogleError as error:  # the job has succeeded all the same
        view.handle(Notice(f"its summary cannot be read: {error}", "warning"))
        return None


def _is_to_be_moved(record: Record, job: Mapping[str, Any]) -> bool:
    """Whether a job has ended without having started, and not by the user's wish."""
    if not record.is_open or record.is_cancelled or "startTime" in job:
        return False
    is_cancelled = record.is_moving and state(job) is JobState.CANCELLED
    return is_cancelled or is_stockout(job)


def _regions_after(region: str, regions: tuple[str, ...]) -> tuple[str, ...]:
    return regions[regions.index(region) + 1 :] if region in regions else ()
