"""The story of a submit: a checked job and its image → a record → a job at Google → its end.

A launch never creates two jobs. Its record is written before the call that creates the job, with an
id that the job carries as a label; a launch that was interrupted is found by it and resumed.
"""

from __future__ import annotations

import json
import platform
import time
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from distlaunch import __version__, timestamps
from distlaunch.errors import CreateRefused, GoogleError
from distlaunch.exit_codes import EXIT_JOB_FAILED
from distlaunch.google.jobs import LAUNCH_LABEL, JobState, has_ended, parse_name, state
from distlaunch.redaction import redact
from distlaunch.source_version import commit_of
from distlaunch.submit.plan import fingerprint
from distlaunch.submit.records import Record, Records, new_launch_id
from distlaunch.submit.resubmission import (
    input_fields,
    output_directory,
    override_inputs,
    with_new_folder,
)
from distlaunch.ui.events import Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from distlaunch.google.client import Session
    from distlaunch.google.follow import JobFollower
    from distlaunch.google.jobs import Jobs
    from distlaunch.submit.plan import SubmitPlan
    from distlaunch.ui.events import Event, Level, ShowMessage
    from distlaunch.ui.progress_view import ProgressView


class Launched(NamedTuple):
    """A launch whose job Google has; its record is open until the launcher closes it."""

    record: Record
    job: Mapping[str, Any]


class Launcher:
    """Launches jobs from a project's folder, each once; `jobs` has their project and region.

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
        self._jobs = jobs
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

    def close(self, record: Record) -> None:
        """Note that the command that launched a job has ended in order."""
        self._records.write(replace(record, is_open=False))

    def _launch(
        self,
        request: Callable[[str], dict[str, Any]],
        *,
        launch_id: str,
        is_new: bool,
        **values: Any,
    ) -> Launched:
        """Create a job of this content, or resume an interrupted launch of it.

        `request` makes the body of the call from a launch id; `values` are fields of the record.
        """
        with self._records.lock():
            unfinished = None if is_new else self._records.find_unfinished(values["content"])
            if unfinished:
                resumed = self._resume(unfinished, request(unfinished.launch_id))
                if resumed:
                    return resumed
            body = request(launch_id)
            record = Record(
                **values,
                launch_id=launch_id,
                project=self._jobs.project,
                region=self._jobs.region,
                request=redact(body),
                job_dir=output_directory(body),
                endpoint=self._jobs.session.endpoint,
                commit=commit_of(self._folder),
                versions={"distlaunch": __version__, "python": platform.python_version()},
                time=timestamps.format(time.time()),
            )
            return self._create(record, body, may_exist=False)

    def _resume(self, record: Record, body: Mapping[str, Any]) -> Launched | None:
        """Resume an interrupted launch; close its record if its job has ended or is gone."""
        job = self._find_job(record)
        is_gone = job is None and record.resource is not None
        if is_gone or (job and has_ended(job)):
            outcome = f"has ended ({state(job)})" if job else "no longer exists"
            self._show(
                f"the job of the interrupted launch {record.launch_id} {outcome}; "
                "starting a new one"
            )
            self.close(replace(record, resource=job["name"]) if job else record)
            return None
        self._show(f"resuming interrupted launch {record.launch_id} (--new starts a new one)")
        if job is None:
            return self._create(record, body, may_exist=True)
        return self._note_job(record, job)

    def _find_job(self, record: Record) -> dict[str, Any] | None:
        """Return a launch's job, None if Google has none or none is listed yet."""
        if record.resource is None:
            return self._jobs.find(record.collection, record.launch_id)
        try:
            return self._jobs.get(record.resource)
        except GoogleError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    def _create(self, record: Record, body: Mapping[str, Any], *, may_exist: bool) -> Launched:
        self._records.write(record)
        try:
            created = self._jobs.create(record.collection, body, may_exist=may_exist)
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
        return self._note_job(record, created.job)

    def _note_job(self, record: Record, job: Mapping[str, Any]) -> Launched:
        record = replace(record, resource=job["name"])
        self._records.write(record)
        return Launched(record, job)

    def _show(self, text: str, level: Level = "info") -> None:
        self._on_event(Notice(text, level))


def follow_to_completion(
    record: Record, session: Session, follower: JobFollower, view: ProgressView
) -> int:
    """Show a job's events until it has ended, and return the exit code."""
    view.stream(follower)
    if state(follower.job) is not JobState.SUCCEEDED:
        return EXIT_JOB_FAILED
    summary = _read_summary(session, record, view)
    if summary:
        view.summarise(summary)
    elif record.job_dir:
        view.handle(Notice(f"done; the job's folder is {record.job_dir}"))
    return 0


def _read_summary(session: Session, record: Record, view: ProgressView) -> dict[str, Any] | None:
    """Return the job's ``summary.json``, None if there is none that can be read."""
    from distlaunch.google import storage

    if record.job_dir is None:
        return None
    try:
        summary = json.loads(storage.read(session, f"{record.job_dir}/summary.json") or b"null")
    except (RecursionError, ValueError):
        return None
    except GoogleError as error:  # the job has succeeded all the same
        view.handle(Notice(f"its summary cannot be read: {error}", "warning"))
        return None
    return summary if isinstance(summary, dict) else None
