"""What `submit` and `resubmit` do alike once Google has the job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from distlaunch.exit_codes import EXIT_INTERRUPTED
from distlaunch.ui.events import Notice

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from typing_extensions import Self

    from distlaunch.google.jobs import Jobs
    from distlaunch.submit.launcher import Launched, Launcher
    from distlaunch.ui.console import Console
    from distlaunch.ui.progress_view import ProgressView


def see_through(
    console: Console,
    launched: Launched,
    launcher: Launcher,
    jobs: Jobs,
    *,
    detach: bool,
    cancel_on_interrupt: bool,
    as_json: bool,
) -> int:
    """Follow a job that was launched to its end, or leave it, and return the exit code.

    Parameters
    ----------
    launcher
        Who launched it.
    detach
        Whether to leave at once.
    cancel_on_interrupt
        Whether Ctrl-C cancels the job; a second one leaves in any case.
    as_json
        Whether what happens is shown as JSON.
    """
    from distlaunch.google.jobs import console_url

    record, job = launched
    try:
        url = None if record.endpoint else console_url(job, record.project)
        console.log(f"submitted {record.launch_id}" + (f": {url}" if url else ""))
        if record.job_dir:
            console.log(f"job folder {record.job_dir}")
        if detach:
            told = {"job": record.launch_id, "name": record.resource, "console": url}
            console.result(json.dumps(told) if as_json else record.launch_id)
            return 0
        with _Followed(console, launched, jobs, as_json=as_json) as followed:
            return followed.to_the_end(cancels=cancel_on_interrupt)
    finally:
        launcher.close(record)


def show_final_state(job: Mapping[str, Any], name: str, watch: ProgressView) -> bool:
    """Show the final state of a job whose following was interrupted; False if it still runs.

    Parameters
    ----------
    job
        Its resource.
    name
        What 'distlaunch logs' finds it by.
    watch
        Shows it.
    """
    from distlaunch.google.jobs import has_ended, state

    if not has_ended(job):
        return False
    text = f"interrupted: the job has ended: {state(job)}; 'distlaunch logs {name}' shows all lines"
    watch.handle(Notice(text))
    return True


def exit_code(job: Mapping[str, Any]) -> int:
    """Return the exit code for a job that has ended."""
    from distlaunch.exit_codes import EXIT_JOB_FAILED
    from distlaunch.google.jobs import JobState, state

    return 0 if state(job) is JobState.SUCCEEDED else EXIT_JOB_FAILED


class _Followed:
    """A job that is followed, and what Ctrl-C means for it."""

    def __init__(
        self,
        console: Console,
        launched: Launched,
        jobs: Jobs,
        *,
        as_json: bool,
    ) -> None:
        from distlaunch.google.follow import JobFollower
        from distlaunch.google.logs import Logs, task_names
        from distlaunch.ui.progress_view import JsonProgressView, ProgressView

        self._record, job = launched
        self._name = self._record.launch_id
        self._jobs = jobs
        self._watch = (JsonProgressView if as_json else ProgressView)(console, task_names(job))
        self._follow = JobFollower(
            jobs,
            Logs(jobs.session, self._record.project),
            job,
            per_entry=as_json,
            sleep=self._watch.wait,
        )

    def to_the_end(self, *, cancels: bool) -> int:
        """Follow it and return the exit code."""
        from distlaunch.submit.launcher import follow_to_completion

        try:
            return follow_to_completion(self._record, self._jobs.session, self._follow, self._watch)
        except KeyboardInterrupt:
            if self._has_ended():
                return exit_code(self._follow.job)
            if not cancels:
                self._warn(
                    f"the job goes on; 'distlaunch logs --follow {self._name}' comes back to it, "
                    f"'distlaunch cancel {self._name}' ends it"
                )
                return EXIT_INTERRUPTED
        self._cancel()
        return EXIT_INTERRUPTED

    def _cancel(self) -> None:
        """Cancel the job and follow it to its end; Ctrl-C leaves."""
        from distlaunch.submit.launcher import follow_to_completion

        try:
            self._watch.handle(Notice("interrupted: cancelling the job (Ctrl-C again leaves)"))
            self._jobs.cancel(str(self._record.resource))
        except KeyboardInterrupt:
            self._warn(
                f"the cancellation is not confirmed; 'distlaunch cancel {self._name}' repeats it"
            )
            return
        try:
            follow_to_completion(self._record, self._jobs.session, self._follow, self._watch)
        except KeyboardInterrupt:
            if not self._has_ended():
                self._warn(f"cancellation requested; 'distlaunch status {self._name}' shows it")

    def _has_ended(self) -> bool:
        """Whether the job is known to have ended; if so, its final state is shown."""
        return show_final_state(self._follow.job, self._name, self._watch)

    def _warn(self, text: str) -> None:
        self._watch.handle(Notice(f"interrupted: {text}", "warning"))

    def __enter__(self) -> Self:
        self._watch.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._watch.__exit__(kind, problem, trace)
