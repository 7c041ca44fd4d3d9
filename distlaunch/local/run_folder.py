"""The folder of a local run: each of its files and folders, and whether it is new or resumed."""

from __future__ import annotations

import os
import re
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch import files, summary
from distlaunch.errors import DistlaunchError, UsageError, os_reason
from distlaunch.files import display_path
from distlaunch.job.launch import check_scheme
from distlaunch.paths import CHECKPOINTS, FOLDER, LOCAL_JOBS
from distlaunch.task_files import AttemptFolder, file_stem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.job.tasks import Task

RUN_RECORD = "run.json"  # what was run, and how it ended; written by the launcher
TRIAL = "trial.json"  # of a trial of a search: its parameters and result
METRICS = "metrics.jsonl"  # what the program of a trial reports
OUTPUT, ERRORS = "output.log", "errors.log"  # stdout and stderr of a trial
_CLOUD_POINTER = "job-dir"  # the URI of a run that has only its output here
_ATTEMPT = "attempt-"
_CLOUD = "gs://"
_BUCKET_URI = re.compile(r"gs://[^/]+(/.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of a run on this machine; with a `uri`, only the tasks' output is in it."""

    path: Path
    uri: str | None = None  # gs://…, where the program writes the rest

    @property
    def id(self) -> str:
        """The name of the folder."""
        return self.path.name

    @property
    def job_dir(self) -> str:
        """Where the program writes: a path or ``gs://…``."""
        return self.uri or str(self.path)

    @property
    def task_logs(self) -> Path:
        """The folder for the tasks' output."""
        return self.path / "task-logs"

    def task_folder(self, task: Task) -> Path:
        """Return the working folder of a task that has one of its own."""
        return self.path / "task-folders" / file_stem(task)

    @property
    def lock_file(self) -> Path:
        """The file whose lock the launcher of a run holds."""
        return self.task_logs / ".lock"

    def summary_version(self) -> tuple[int, int] | None:
        """Return a value that changes when ``summary.json`` is written; None without one."""
        try:
            status = (self.path / summary.FILE_NAME).stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def summary(self) -> dict[str, Any] | None:
        """Return the contents of ``summary.json``, if it can be read."""
        return summary.read(self.path / summary.FILE_NAME)

    def written(self) -> float:
        """Return when its record was written for the last time, in seconds since 1970."""
        try:
            return (self.path / RUN_RECORD).stat().st_mtime
        except OSError:
            return 0.0

    def new_attempt(self) -> AttemptFolder:
        """Create a folder with a number that no attempt before has: a run may be resumed."""
        path = self.task_logs / f"{_ATTEMPT}{1 + self._newest_number}"
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise DistlaunchError(
                f"{path}: cannot be created ({os_reason(problem)}); see --job-dir"
            ) from None
        return AttemptFolder(path)

    @property
    def newest_attempt(self) -> AttemptFolder:
        """The folder of the last attempt, which does not exist before the first one."""
        return AttemptFolder(self.task_logs / f"{_ATTEMPT}{self._newest_number}")

    @property
    def _newest_number(self) -> int:
        names = [path.name.removeprefix(_ATTEMPT) for path in self.task_logs.glob(f"{_ATTEMPT}*")]
        return max((int(name) for name in names if name.isdecimal()), default=0)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other runs out of this job folder, if the file system has locks."""
        with ExitStack() as stack:
            try:
                stack.enter_context(files.lock(self.lock_file, wait=False))
            except BlockingIOError:
                raise DistlaunchError(
                    f"{display_path(self.path)}: another 'distlaunch local' runs in this folder; "
                    "wait for it or choose another --job-dir"
                ) from None
            except OSError:
                pass
            yield

    def read_uri(self) -> str | None:
        """Return the ``gs://`` URI of a run that has only its output here, None for others."""
        try:
            uri = files.read_regular(self.path / _CLOUD_POINTER).decode().strip()
        except (OSError, ValueError):
            return None
        return uri if _BUCKET_URI.fullmatch(uri) else None

    def has_checkpoints(self) -> bool:
        """Whether there is a finished checkpoint."""
        try:
            return any(map(_is_complete, (self.path / CHECKPOINTS).iterdir()))
        except OSError:
            return False


def all_runs(project: Path) -> list[RunFolder]:
    """Return the folders of a project's runs that have a record, in any order."""
    folders = (path.parent for path in (project / LOCAL_JOBS).glob(f"*/{RUN_RECORD}"))
    return [RunFolder(path) for path in folders if not path.is_symlink()]


def find_run(project: Path, name: str) -> RunFolder | None:
    """Return the folder of a run that has a record, by its id or path."""
    paths = (project / LOCAL_JOBS / name, project / name)
    return next((RunFolder(path) for path in paths if (path / RUN_RECORD).is_file()), None)


def choose(
    project: Path, resume: str | None, requested: str | None, by_file: str | None
) -> RunFolder:
    """Create and return the folder of `--resume`, `--job-dir` or the job file.

    DistlaunchError is raised if two are requested, there is no such run, or its folder cannot be
    written.
    """
    job_dir = requested or by_file
    if job_dir:
        check_scheme(job_dir)
    if resume is None:
        return new(project, job_dir)
    if resume and requested:
        raise UsageError(
            f"--resume {resume} and --job-dir {requested} are two folders; give one of them"
        )
    return resumed(project, resume or job_dir or "")


def new(project: Path, job_dir: str | None) -> RunFolder:
    """Create the folder of a new run, by default one of the project's."""
    if job_dir and not job_dir.startswith(_CLOUD):
        path = os.path.abspath(project / job_dir)  # noqa: PTH100 - symlinks stay
        return _create(project, RunFolder(Path(path)))
    if job_dir and not _BUCKET_URI.fullmatch(job_dir):
        raise UsageError(f"{job_dir}: no bucket is named; expected gs://BUCKET/FOLDER")
    folder = RunFolder(create_numbered(project, LOCAL_JOBS), job_dir and job_dir.rstrip("/"))
    if folder.uri:
        with _writing(folder.path):
            (folder.path / _CLOUD_POINTER).write_text(f"{folder.uri}\n", encoding="utf-8")
    return _create(project, folder)


def resumed(project: Path, job: str) -> RunFolder:
    """Return the folder of a run to resume: an id, a path, ``gs://…`` or nothing for the newest."""
    if job.startswith(_CLOUD):
        return new(project, job)
    folder = RunFolder(_named(project, job)) if job else _newest(project)
    uri = folder.read_uri()
    if uri:
        return _create(project, RunFolder(folder.path, uri))
    if not folder.has_checkpoints():
        raise _nothing_to_resume(f"{display_path(folder.path)} has no checkpoints to resume from")
    return new(project, str(folder.path))


def _newest(project: Path) -> RunFolder:
    try:
        folders = map(RunFolder, (project / LOCAL_JOBS).iterdir())
        for folder in sorted(folders, key=_age, reverse=True):
            if folder.read_uri() or folder.has_checkpoints():
                return folder
    except OSError:
        pass
    raise _nothing_to_resume(f"no job in {LOCAL_JOBS} has checkpoints to resume from")


def _nothing_to_resume(problem: str) -> DistlaunchError:
    return DistlaunchError(f"--resume: {problem}; start a new run without --resume")


def _age(folder: RunFolder) -> list[int]:
    """Return a key that sorts the ids YYYYMMDD-HHMMSS, YYYYMMDD-HHMMSS-2, …-10 by age."""
    return [int(number) for number in re.findall(r"\d+", folder.id, re.ASCII)]


def _is_complete(checkpoint: Path) -> bool:
    """Whether the trainer has finished a checkpoint; those of other programs count as finished."""
    is_trainers = checkpoint.name.startswith("step-")
    return not is_trainers or (checkpoint / "checkpoint.json").exists()


def _named(project: Path, job: str) -> Path:
    by_id = project / LOCAL_JOBS / job
    is_bare_name = job == Path(job).name and job != ".."
    folder = by_id if is_bare_name and by_id.is_dir() else project / job
    if not folder.is_dir():
        raise DistlaunchError(
            f"--resume: {job!r} is neither a job in {LOCAL_JOBS} nor a folder; "
            "give a job's id or path, or nothing for the newest"
        )
    return folder


def create_numbered(project: Path, below: Path) -> Path:
    """Create a folder named after the time, with a number if another run has that name."""
    with _writing(project / below):
        jobs = files.make_folder(project / below, below=project)
    now = time.strftime("%Y%m%d-%H%M%S")
    path, number = jobs / now, 1
    while True:
        with _writing(path), suppress(FileExistsError):
            path.mkdir()
            return path
        number += 1
        path = jobs / f"{now}-{number}"


def _create(project: Path, folder: RunFolder) -> RunFolder:
    """Create a folder with that of the tasks' output.

    One of distlaunch's own may come with a cloned project, and the trainer writes into its folders.
    """
    path = folder.path
    is_own = path.is_relative_to(project / FOLDER)
    with _writing(path):
        files.make_folder(folder.task_logs, below=project if is_own else path)
        for child in path.iterdir() if is_own else ():
            files.refuse_symlinks(child, below=path)
    return folder


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Raise DistlaunchError if the folder cannot be written."""
    try:
        yield
    except OSError as problem:
        raise DistlaunchError(
            f"{display_path(folder)}: the job folder cannot be written ({os_reason(problem)}); "
            "choose another --job-dir"
        ) from None
