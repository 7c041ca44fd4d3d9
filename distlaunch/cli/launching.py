"""What `submit` and `resubmit` do alike once Google has the job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from distlaunch.cli import INTERRUPTED
from distlaunch.events import Notice

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from distlaunch.console import Console
    from distlaunch.google.jobs import Jobs
    from distlaunch.launch import Launched, Launcher


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
        console.say(f"submitted {record.launch_id}" + (f": {url}" if url else ""))
        if record.job_dir:
            console.say(f"job folder {record.job_dir}")
        if detach:
            told = {"job": record.launch_id, "name": record.resource, "console": url}
            console.result(json.dumps(told) if as_json else record.launch_id)
            return 0
        with _Followed(console, launched, jobs, as_json=as_json) as followed:
            return followed.to_the_end(cancels=cancel_on_interrupt)
    finally:
        launcher.close(record)


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
        from distlaunch.google.follow import Follow, task_names
        from distlaunch.google.logs import Logs
        from distlaunch.watch import JsonWatch, Watch

        self._record, job = launched
        self._jobs = jobs
        self._watch = (JsonWatch if as_json else Watch)(console, task_names(job))
        self._follow = Follow(
            jobs,
            Logs(jobs.session, self._record.project),
            job,
            one_by_one=as_json,
            sleep=self._watch.wait,
        )

    def to_the_end(self, *, cancels: bool) -> int:
        """Follow it and return the exit code."""
        from distlaunch.launch import attend

        try:
            return attend(self._record, self._jobs.session, self._follow, self._watch)
        except KeyboardInterrupt:
            if not cancels:
                self._say_how_to_come_back()
                return INTERRUPTED
        self._cancel()
        try:
            attend(self._record, self._jobs.session, self._follow, self._watch)
        except KeyboardInterrupt:
            self._say_how_to_come_back()
        return INTERRUPTED

    def _cancel(self) -> None:
        self._watch.see(Notice("interrupted: cancelling the job (Ctrl-C again leaves)"))
        self._jobs.cancel(str(self._record.resource))

    def _say_how_to_come_back(self) -> None:
        job = self._record.launch_id
        text = f"interrupted: the job goes on; 'distlaunch logs --follow {job}' comes back to it, "
        self._watch.see(Notice(f"{text}'distlaunch cancel {job}' ends it", "warning"))

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
