"""A Slurm cluster as an `Engine`: the jobs in one folder that all nodes share."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch import files, timestamps
from distlaunch.engines.api import Created, Request
from distlaunch.engines.code_files import CodeFiles
from distlaunch.engines.slurm import commands
from distlaunch.engines.slurm.batch import batch_script, build_request
from distlaunch.engines.slurm.job_status import read_status
from distlaunch.engines.slurm.launch_folder import LaunchFolder
from distlaunch.errors import (
    DistlaunchError,
    SlurmError,
    SlurmRefused,
    SlurmUnreachable,
    UsageError,
    os_reason,
)
from distlaunch.job.launch import LaunchRequest
from distlaunch.job.load import job_from_data
from distlaunch.job.tasks import Task
from distlaunch.task_files import file_stem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from distlaunch.engines.api import JobStatus, LogSelection
    from distlaunch.engines.slurm.follow import SlurmFollower
    from distlaunch.events import Event
    from distlaunch.failure_reasons import FailureReport

_ATTEMPTS = 4  # of sbatch, if the controller does not respond
_PAUSE = 3.0  # seconds before the next one, and longer each time


class SlurmEngine:
    """The jobs in a folder; see `Engine`. The name of one is the path of its launch's folder."""

    project = region = ""
    endpoint = None

    def __init__(
        self, folder: Path, project: Path, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.folder = folder.expanduser()
        self._project = project  # which may have a template of its own
        self._sleep = sleep

    @property
    def place(self) -> dict[str, Any]:
        """The fields of a record."""
        return {"engine": "slurm", "project": "", "region": "", "folder": str(self.folder)}

    @property
    def location(self) -> str:
        """Where the jobs are, in words."""
        return str(self.folder)

    def in_region(self, region: str) -> SlurmEngine:  # noqa: ARG002 - there are none
        """Return this engine."""
        return self

    @staticmethod
    def request(launch: LaunchRequest, launch_id: str, image: str | None) -> Request:  # noqa: ARG004
        """Return the request for a launch's job, without its code."""
        body = build_request(launch, launch_id)
        return Request(launch.job.name, "", body, body["job_dir"])

    def request_again(
        self, job: JobStatus, overrides: Sequence[str], program_args: Sequence[str]
    ) -> Callable[[str], Request]:
        """Return a function that makes the request for a job like another one from a launch id."""
        again = job_from_data(job.resource["request"]["job"], overrides, program_args)
        launch = LaunchRequest(self._project, again)
        try:
            code = CodeFiles.in_folder(LaunchFolder(Path(job.name)).code)
        except OSError as problem:
            raise DistlaunchError(
                f"{job.name}: its code cannot be read ({os_reason(problem)})",
                remedy="run 'distlaunch submit' in the project",
            ) from None
        return lambda launch_id: self.request(launch, launch_id, None)._replace(code=code)

    def create(self, request: Request, *, may_exist: bool) -> Created:
        """Create a job once: it is looked up by its comment before a retry.

        Raises
        ------
        SlurmRefused
            If it is refused, or its folder is not of this user alone, and no earlier call can have
            created it.
        DistlaunchError
            If it is refused after a lost response, not reached, or the folder cannot be written.
        """
        try:
            return self._create(request, may_exist=may_exist)
        except SlurmRefused as refusal:
            if may_exist:
                raise SlurmError(refusal.what, remedy=refusal.remedy) from None
            raise

    def _create(self, request: Request, *, may_exist: bool) -> Created:
        folder = LaunchFolder(Path(request.body["launch_folder"]))
        with folder.lock() as descriptor:
            if may_exist and self._find_number(folder):
                return Created(self._status(folder), is_new=False)
            body = {**request.body, "time": timestamps.format(time.time())}
            folder.write(body, batch_script(body, self._project), request.code or CodeFiles(()))
            try:
                number, is_sure = self._submit(folder, descriptor)
            except SlurmRefused:
                if not may_exist:
                    shutil.rmtree(folder.path, ignore_errors=True)
                raise
            number = folder.claim(number)
        duplicates = () if is_sure and not may_exist else self._end_duplicates(folder, number)
        return Created(self._status(folder), is_new=True, duplicates=duplicates)

    def find(self, launch_id: str, collection: str) -> JobStatus | None:  # noqa: ARG002
        """Return the job of a launch, None if there is none."""
        for folder in self._own(f"*/{launch_id}"):
            with folder.lock():  # which an sbatch of a killed command may hold
                if self._find_number(folder):
                    return self._status(folder)
        return None

    def get(self, name: str) -> JobStatus:
        """Return a job by the path of its launch's folder."""
        return self._status(LaunchFolder(Path(name)))

    def search(self, name: str) -> list[JobStatus]:
        """Return the jobs of a launch id, a name or Slurm's number, the newest last."""
        folders = [folder for folder in self._folders() if _matches(folder, name)]
        return sorted(self._statuses(folders), key=lambda job: job.created or "")

    def newest(self, limit: int, *, all_jobs: bool) -> list[JobStatus]:
        """Return the newest jobs of distlaunch, the newest first."""
        if all_jobs:
            raise UsageError("--all: run 'squeue' for jobs that distlaunch did not submit")
        folders = sorted(self._folders(), key=lambda folder: folder.script.stat().st_mtime)
        jobs = self._statuses(folders[max(len(folders) - limit, 0) :])
        return sorted(jobs, key=lambda job: job.created or "", reverse=True)

    def cancel(self, name: str) -> None:
        """Request the end of a job: its tasks get SIGTERM, and time to save."""
        folder = LaunchFolder(Path(name))
        queued = _queue().get(folder.job_number or "")
        if queued is None or queued.comment != folder.path.name:
            raise SlurmError(f"{folder.path.name}: Slurm does not know its job, so it has ended")
        folder.note_cancelled()
        commands.cancel_job(queued.id)

    def follow(
        self,
        job: JobStatus,
        selection: LogSelection | None,
        *,
        sleep: Callable[[float], None],
        max_wait: float | None = None,  # noqa: ARG002 - there is no other place for the job
    ) -> SlurmFollower:
        """Return a job's events; see `SlurmFollower`."""
        from distlaunch.engines.slurm.follow import SlurmFollower

        _check(selection)
        folder = LaunchFolder(Path(job.name))
        return SlurmFollower(folder, job, selection, lambda: self._status(folder), sleep=sleep)

    def read_log(self, job: JobStatus, selection: LogSelection) -> Iterator[Event]:
        """Yield the lines of a job's log that exist now, task by task."""
        from distlaunch.engines.slurm.logs import TaskLogReader
        from distlaunch.events import TaskLines, Trained
        from distlaunch.figures import FIGURES

        _check(selection)
        reader = TaskLogReader(LaunchFolder(Path(job.name)), job.tasks, selection)
        for event in reader.read():
            if isinstance(event, TaskLines) or (
                isinstance(event, Trained) and event.event["event"] == FIGURES
            ):
                yield event

    def read_figures(self, job: JobStatus) -> dict[str, Any]:
        """Return the newest figures of each task in the last attempt."""
        from distlaunch.engines.slurm.logs import read_figures

        return read_figures(LaunchFolder(Path(job.name)), job.tasks)

    def shell(self, job: JobStatus, task: str) -> tuple[str, ...]:
        """Return the command of a shell on a task's node, as a step of the job."""
        folder = LaunchFolder(Path(job.name))
        node = folder.attempt(folder.attempts()).path / f"{file_stem(Task.parse(task))}.node"
        name = node.read_text(encoding="utf-8") if node.exists() else ""
        if not name:
            raise SlurmError(f"{job.id}: {task} has not started yet", remedy="try again")
        words = ("srun", f"--jobid={folder.job_number}", "--overlap", "--nodes=1", "--ntasks=1")
        return (*words, f"--nodelist={name}", "--pty", "bash")

    def find_failure(self, job: JobStatus) -> FailureReport | None:
        """Return the first failure of a job, None for one that has not failed."""
        from distlaunch.engines.slurm.failure import find_failure

        return find_failure(LaunchFolder(Path(job.name)), job)

    def read_file(self, uri: str) -> bytes | None:
        """Return the content of a file of a job's folder, None if there is none."""
        try:
            return files.read_regular(Path(uri))
        except (OSError, ValueError):
            return None

    def _submit(self, folder: LaunchFolder, lock: int) -> tuple[str, bool]:
        """Submit the script; return the job's number, and whether there can be no second job."""
        problem: SlurmError | None = None
        for attempt in range(_ATTEMPTS):
            try:
                # sbatch may have created the job, and its response was lost.
                number = self._find_number(folder) if attempt else None
                if number is None:
                    number = commands.submit_batch(folder.script, folder.path.name, lock)
            except SlurmUnreachable as error:  # noqa: PERF203 - it is a loop of attempts
                problem = error
                self._sleep(_PAUSE * (attempt + 1))
            except SlurmError as refusal:
                kind = SlurmError if attempt else SlurmRefused
                raise kind(str(refusal)) from None
            else:
                return number, attempt == 0
        raise SlurmUnreachable(
            f"{problem}; the job may exist: run the same command again, which looks for it first"
        )

    def _find_number(self, folder: LaunchFolder) -> str | None:
        """Return the number of a launch's job, None if it has none."""
        if folder.job_number is None:
            numbers = [job.id for job in commands.read_queue() if job.comment == folder.path.name]
            return folder.claim(numbers[0]) if numbers else None
        return folder.job_number

    def _end_duplicates(self, folder: LaunchFolder, number: str) -> tuple[str, ...]:
        """Cancel other jobs of a launch; return those that could not be cancelled."""
        left = []
        for job in commands.read_queue():
            is_other = job.comment == folder.path.name and job.id != number
            if is_other and not job.state.is_terminal:
                try:
                    commands.cancel_job(job.id)
                except SlurmError:
                    left.append(job.id)
        return tuple(left)

    def _folders(self) -> Iterator[LaunchFolder]:
        return (folder for folder in self._own("*/*") if folder.script.exists())

    def _own(self, pattern: str) -> Iterator[LaunchFolder]:
        """Yield the launches of this user: other users of a shared folder write what they want."""
        return filter(lambda each: each.is_own, map(LaunchFolder, self.folder.glob(pattern)))

    def _status(self, folder: LaunchFolder) -> JobStatus:
        status = read_status(folder, _queue()) if folder.is_own else None
        if status is None:
            raise SlurmError(
                f"{folder.path}: no launch of yours is there",
                remedy="'distlaunch list' lists those in slurm.folder",
            )
        return status

    def _statuses(self, folders: Sequence[LaunchFolder]) -> list[JobStatus]:
        queue = _queue() if folders else {}
        return [*filter(None, (read_status(folder, queue) for folder in folders))]


def _queue() -> Mapping[str, commands.QueuedJob]:
    """Return the jobs that Slurm knows by their numbers."""
    return {job.id: job for job in commands.read_queue()}


def _matches(folder: LaunchFolder, name: str) -> bool:
    return name in (folder.path.name, folder.path.parent.name, str(folder.path), folder.job_number)


def _check(selection: LogSelection | None) -> None:
    """Raise UsageError for what a log on Slurm cannot be searched for: its lines have no times."""
    if selection and (selection.since is not None or selection.severity or selection.needs_times):
        option = "--timestamps" if selection.needs_times else "--since"
        option = "--severity" if selection.severity else option
        raise UsageError(f"{option}: lines on Slurm have no time and no severity; use --tail N")
