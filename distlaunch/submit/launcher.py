"""The story of a submit: a checked job and its image or code → a record → a job → its end.

At most one job of a launch is alive. Its record is written before the call that creates the job,
with an id that the job carries as a label; a launch that was interrupted is found by it and
resumed. Several commands may follow one launch, so a launch is moved to other machines or another
region under a lock, by the record as it is on the disk then.
"""

from __future__ import annotations

import platform
import time
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from distlaunch import __version__, timestamps
from distlaunch.engines.api import JobState
from distlaunch.errors import DistlaunchError, EmulatorStopped, EngineError, GoogleError
from distlaunch.events import Notice
from distlaunch.job.launch import fingerprint, new_launch_id
from distlaunch.job.vertex.view import job_request
from distlaunch.redaction import redact
from distlaunch.source_version import commit_of
from distlaunch.submit.records import Record, Records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from distlaunch.engines.api import Engine, JobStatus, Request
    from distlaunch.engines.code_files import CodeFiles
    from distlaunch.engines.vertex.client import Session
    from distlaunch.events import Event, Level, ShowMessage
    from distlaunch.job.launch import LaunchRequest
    from distlaunch.submit.plan import SubmitPlan

    MakeRequest = Callable[[str], Request]  # from a launch id


class Choice(NamedTuple):
    """Machines in a region to try."""

    region: str
    request: MakeRequest
    machines: str = ""  # in words, where they differ between the choices

    def __str__(self) -> str:
        return f"{self.machines} in {self.region}" if self.machines else self.region


class Launched(NamedTuple):
    """A launch; its record is open until the launcher closes it."""

    record: Record
    job: JobStatus
    choices: tuple[Choice, ...]  # all of the launch

    @property
    def choice(self) -> Choice:
        """The machines and the region of the job."""
        return _choice_of(self.record, self.choices)

    @property
    def others(self) -> tuple[Choice, ...]:
        """Those to try after it."""
        return self.choices[self.record.choice + 1 :]


class Launcher:
    """Launches jobs from a project's folder, each once.

    Attributes
    ----------
    engine : Engine
        Of the region of the last launch.

    `show_message` prints a warning for each file that is not a valid record.
    """

    def __init__(
        self,
        folder: Path,
        engine: Engine,
        on_event: Callable[[Event], None],
        *,
        show_message: ShowMessage | None = None,
    ) -> None:
        self._folder = folder
        self._records = Records(folder, show_message)
        self.engine = engine
        self._on_event = on_event

    def launch(
        self, plan: SubmitPlan, progress: Callable[[str], None], *, is_new: bool = False
    ) -> Launched:
        """Build and push the image and submit the job, or resume an identical launch."""
        launch, code, image = plan.launch, plan.code, None
        if plan.image:
            from distlaunch.image import execute_plan
            from distlaunch.image.cloud_build import CloudBuild

            session: Session | None = getattr(self.engine, "session", None)  # of Vertex AI
            image = execute_plan(
                plan.image,
                self._on_event,
                progress=progress,
                cloud_build=CloudBuild.of(launch.job, session) if session else None,
            )
        return self._launch(
            tuple(self._choices(launch, image, code)),
            launch_id=plan.launch_id,
            name=launch.job.name,
            content=launch.fingerprint(code.digest if code else image),
            image=image or launch.job.image.uri,
            is_new=is_new,
        )

    def _choices(
        self, launch: LaunchRequest, image: str | None, code: CodeFiles | None
    ) -> Iterator[Choice]:
        """Yield the machines and regions to try in their order."""
        choices = launch.choices
        clusters = [choice.job.cluster for choice in choices]
        is_named = any(cluster != clusters[0] for cluster in clusters)
        for choice in choices:

            def request(launch_id: str, choice: LaunchRequest = choice) -> Request:
                return self.engine.request(choice, launch_id, image)._replace(code=code)

            machines = job_request(choice).machines if is_named else ""
            yield Choice(choice.job.region or self.engine.region, request, machines)

    def resubmit(
        self,
        job: JobStatus,
        *,
        overrides: tuple[str, ...] = (),
        program_args: tuple[str, ...] = (),
        is_new: bool = False,
    ) -> Launched:
        """Submit a job again, with a new job folder, overrides and more arguments."""
        request = self.engine.request_again(job, overrides, program_args)
        choice, first = Choice(self.engine.region, request), request("ID")
        name = first.name
        if not first.has_folder:
            self._show(
                "this job names no output directory; if its program writes to a fixed path, the "
                "new job writes there too",
                "warning",
            )
        return self._launch(
            (choice,),
            launch_id=new_launch_id(name),
            name=name,
            content=fingerprint(["again", job.name, overrides, program_args]),
            is_new=is_new,
        )

    def cancel_to_move(self, launched: Launched) -> None:
        """Cancel a job that is to be moved, unless it has started by now.

        The record has the intention, in case this command is killed before the job has ended.
        """
        record, name = launched.record, str(launched.record.resource)
        if not self._is_waiting(name):
            return
        with self._records.lock():
            self._records.update(record, is_moving=True)
        text = "on" if launched.choice.machines else "in"
        self._show(f"the job has not started {text} {launched.choice}: cancelling it")
        try:
            self.engine.cancel(name)
        except EngineError as error:
            # Where it is still waiting, the user may cancel it later, and then it must not move.
            if self._is_waiting(name):
                with self._records.lock():
                    self._records.update(record, is_moving=False)
            self._show(f"the job is not moved, as it cannot be cancelled: {error}", "warning")

    def move(self, launched: Launched, job: JobStatus) -> Launched | None:
        """Submit a launch again on its next machines, if its job has ended without having started.

        If another command has moved it, that launch is returned; None if it is not to be moved.
        """
        if not launched.others:
            return None
        with self._records.lock():
            last = self._records.current(launched.record)
            successor = self._records.find_moved(last.launch_id)
            if successor:
                return self._join(launched, successor)
            if not _is_to_be_moved(last, job):
                return None
            missing = launched.choice if launched.choice.machines else f"machines in {last.region}"
            self._show(f"no {missing}; moving the job to {launched.others[0]}", "warning")
            return self._create_next(launched, last)

    def close(self, record: Record) -> None:
        """Note that a launch is over: its job has ended, or the user leaves it running."""
        self._note(record, is_open=False)

    def note_cancelled(self, record: Record) -> None:
        """Note that the user cancels a job, so that no command moves it."""
        self._records.note_cancelled(record)

    def _join(self, launched: Launched, successor: Record) -> Launched | None:
        """Follow the launch that another command has moved, to where it is now."""
        for _ in launched.others:
            successor = self._records.find_moved(successor.launch_id) or successor
        self.engine = self.engine.in_region(successor.region)
        job = self._find_job(successor)
        if job:
            return Launched(successor, job, launched.choices)
        if not successor.is_open or successor.resource:
            return None  # refused, or deleted since
        # That command was killed.
        return self._create(successor, launched.choices, may_exist=True)

    def _create_next(self, launched: Launched, last: Record) -> Launched:
        choice = launched.others[0]
        self.engine = self.engine.in_region(choice.region)
        launch_id = new_launch_id(last.name)
        request = choice.request(launch_id)
        record = replace(
            last,
            launch_id=launch_id,
            region=choice.region,
            choice=last.choice + 1,
            request=redact(request.body),
            job_dir=request.job_dir,
            resource=None,
            is_moving=False,
            moved_from=last.launch_id,
            time=timestamps.format(time.time()),
        )
        try:
            return self._create(record, launched.choices, may_exist=False)
        finally:
            self.close(last)

    def _launch(
        self,
        choices: tuple[Choice, ...],
        launch_id: str,
        *,
        is_new: bool,
        **values: Any,
    ) -> Launched:
        """Create a job of this content, or resume an interrupted launch of it.

        `values` are fields of the record.
        """
        first = self.engine
        with self._records.lock():
            unfinished = None if is_new else self._records.find_unfinished(values["content"])
            if unfinished:
                self.engine = first.in_region(unfinished.region)
                resumed = self._resume(unfinished, choices)
                if resumed:
                    return resumed
                self.engine = first
            request = choices[0].request(launch_id)
            record = Record(
                **values,
                launch_id=launch_id,
                **first.place,
                collection=request.collection,
                request=redact(request.body),
                job_dir=request.job_dir,
                commit=commit_of(self._folder),
                versions={"distlaunch": __version__, "python": platform.python_version()},
                time=timestamps.format(time.time()),
            )
            return self._create(record, choices, may_exist=False)

    def _resume(self, record: Record, choices: tuple[Choice, ...]) -> Launched | None:
        """Resume an interrupted launch; close its record if its job has ended or is gone."""
        with job_goes_on(record):
            job = self._find_job(record)
        is_gone = job is None and record.resource is not None
        is_last = record.choice + 1 >= len(choices)
        waits_for_move = job and not is_last and _is_to_be_moved(record, job)
        if is_gone or (job and job.has_ended and not waits_for_move):
            outcome = f"has ended ({job.state})" if job else "no longer exists"
            self._show(
                f"the job of the interrupted launch {record.launch_id} {outcome}; "
                "starting a new one"
            )
            self._note(record, is_open=False, resource=job.name if job else record.resource)
            return None
        self._show(f"resuming interrupted launch {record.launch_id} (--new starts a new one)")
        if job is None:
            return self._create(record, choices, may_exist=True)
        self._note(record, resource=job.name)
        return Launched(replace(record, resource=job.name), job, choices)

    def _find_job(self, record: Record) -> JobStatus | None:
        """Return a launch's job, None if there is none or none is listed yet."""
        if record.resource is None:
            return self.engine.find(record.launch_id, record.collection)
        try:
            return self.engine.get(record.resource)
        except GoogleError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    def _create(self, record: Record, choices: tuple[Choice, ...], *, may_exist: bool) -> Launched:
        try:
            self._records.write(record)
        except DistlaunchError as error:
            raise DistlaunchError(f"{error}; nothing was submitted") from None
        try:
            request = _choice_of(record, choices).request(record.launch_id)
            created = self.engine.create(request, may_exist=may_exist)
        except KeyboardInterrupt:
            self._show(
                "interrupted while creating the job, which may exist; run the same command again "
                "to find out and finish the launch",
                "warning",
            )
            raise
        except EngineError as error:
            if error.created_nothing:
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
        self._note(record, resource=created.job.name)
        record = replace(record, resource=created.job.name)
        return Launched(record, created.job, choices)

    def _is_waiting(self, name: str) -> bool:
        """Whether a job has not started."""
        return self.engine.get(name).state.is_before_running

    def _note(self, record: Record, **changes: Any) -> None:
        """Change a record; only the next command needs it, so a failure is a warning."""
        try:
            self._records.update(record, **changes)
        except DistlaunchError as error:
            self._show(str(error), "warning")

    def _show(self, text: str, level: Level = "info") -> None:
        self._on_event(Notice(text, level))


def _choice_of(record: Record, choices: tuple[Choice, ...]) -> Choice:
    """Return where a job is; the last choice if the record's, which was edited, does not exist."""
    return choices[min(record.choice, len(choices) - 1)]


@contextmanager
def job_goes_on(record: Record) -> Iterator[None]:
    """Add to an error what becomes of the job, whose launch stays open."""
    try:
        yield
    except EmulatorStopped:
        raise
    except EngineError as error:
        raise error.with_text(
            f"{error}; the job may still be running: run the same command again to follow it, or "
            f"'distlaunch cancel {record.launch_id}'"
        ) from error


def _is_to_be_moved(record: Record, job: JobStatus) -> bool:
    """Whether a job has ended without having started, and not by the user's wish."""
    if not record.is_open or record.is_cancelled or job.started:
        return False
    is_cancelled = record.is_moving and job.state is JobState.CANCELLED
    return is_cancelled or job.is_stockout
