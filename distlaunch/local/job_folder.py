"""The folder of a local job: which one it is, whether it can be written, what was left in it."""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch import files
from distlaunch.errors import DistlaunchError, UsageError, os_reason
from distlaunch.job.job_dir import check_scheme
from distlaunch.paths import LOCAL_JOBS

if TYPE_CHECKING:
    from collections.abc import Iterator

TASK_LOGS = "task-logs"
NEWEST = ""  # what --resume is given for the newest job
CLOUD_POINTER_FILE = "job-dir"  # holds the URI of a job that has only its output here

_IN_THE_CLOUD = "gs://"
_IN_A_BUCKET = re.compile(r"gs://[^/]+(/.*)?", re.DOTALL)
_LOCK = ".lock"  # in the folder for the tasks' output


@dataclass(frozen=True, slots=True)
class JobFolder:
    """Where a job writes.

    Parameters
    ----------
    job_dir
        The job's folder, an absolute local path or ``gs://…``.
    logs_dir
        Where the tasks' output goes; always on this machine.
    job_id
        What the job is called: the name of the folder.
    """

    job_dir: str
    logs_dir: Path
    job_id: str

    def summary_version(self) -> tuple[int, int] | None:
        """Return what is another after ``summary.json`` was written again; None without one."""
        try:
            found = self._summary.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def summary(self) -> dict[str, Any] | None:
        """Return the contents of the job's ``summary.json``, if it can be read."""
        try:
            summary = json.loads(self._summary.read_bytes())
        except (OSError, ValueError):
            return None
        return summary if isinstance(summary, dict) else None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other runs out of this job folder, if the file system has locks.

        Raises
        ------
        DistlaunchError
            If another run is in it.
        """
        with ExitStack() as stack:
            try:
                stack.enter_context(files.lock(self.logs_dir / _LOCK, wait=False))
            except BlockingIOError:
                raise DistlaunchError(
                    f"{_shown(self.logs_dir.parent)}: another 'distlaunch local' runs in this job "
                    "folder; wait for it or choose another --job-dir"
                ) from None
            except OSError:
                pass
            yield

    @property
    def _summary(self) -> Path:
        return Path(self.job_dir, "summary.json")  # of gs://… no such file is here


def choose(
    project: Path, resume: str | None, requested: str | None, by_file: str | None
) -> JobFolder:
    """Return the folder that the command line and the job file request, and make it.

    Parameters
    ----------
    project
        The project's folder.
    resume
        The job to go on with, an empty word for the newest, None for none.
    requested
        The job folder of the command line.
    by_file
        The one of the job file.

    Raises
    ------
    UsageError
        If two folders are requested.
    DistlaunchError
        If there is no such job, or its folder cannot be written.
    """
    named = requested or by_file
    if named:
        check_scheme(named)
    if resume is None:
        return new(project, named)
    if resume and requested:
        raise UsageError(
            f"--resume {resume} and --job-dir {requested} are two folders; give one of them"
        )
    return resumed(project, resume or named or NEWEST)


def new(project: Path, job_dir: str | None) -> JobFolder:
    """Return the folder for a job that is no resumption, and make it.

    Parameters
    ----------
    project
        The project's folder, in which the job's lies unless `job_dir` is another.
    job_dir
        What the user requested.

    Raises
    ------
    DistlaunchError
        If it cannot be made or written.
    """
    if job_dir is None:
        own = _made_anew(project / LOCAL_JOBS)
        return JobFolder(str(own), own / TASK_LOGS, own.name)
    if _is_in_the_cloud(job_dir):
        _need_bucket(job_dir)
        own = _made_anew(project / LOCAL_JOBS)
        where = job_dir.rstrip("/")
        _tell_where(own, where)
        return JobFolder(where, own / TASK_LOGS, own.name)
    folder = Path(os.path.abspath(project / job_dir))  # noqa: PTH100 - links stay
    _make(folder)
    return JobFolder(str(folder), folder / TASK_LOGS, folder.name)


def resumed(project: Path, which: str) -> JobFolder:
    """Return the folder of a job that is to go on.

    Parameters
    ----------
    project
        The project's folder.
    which
        A job's id, a path, ``gs://…``, or nothing for the newest job of the project.

    Raises
    ------
    DistlaunchError
        If there is no such job, if it has no checkpoint, or if it cannot be written.
    """
    if _is_in_the_cloud(which):
        return new(project, which)
    folder = _newest(project) if which == NEWEST else _named(project, which)
    where = _elsewhere(folder)
    if where:
        _make(folder)
        return JobFolder(where, folder / TASK_LOGS, folder.name)
    if not _has_checkpoints(folder):
        raise DistlaunchError(
            f"--resume: {_shown(folder)} has no checkpoints to resume from; "
            "start a new run without --resume"
        )
    return new(project, str(folder))


def _newest(project: Path) -> Path:
    try:
        jobs = sorted((project / LOCAL_JOBS).iterdir(), key=_age)
    except OSError:
        jobs = []
    if not jobs:
        raise DistlaunchError(f"--resume: no job in {LOCAL_JOBS} yet; start one without --resume")
    for job in reversed(jobs):
        if _elsewhere(job) or _has_checkpoints(job):
            return job
    raise DistlaunchError(
        f"--resume: no job in {LOCAL_JOBS} has checkpoints to resume from; "
        "start a new run without --resume"
    )


def _has_checkpoints(folder: Path) -> bool:
    try:
        return any(map(_is_whole, (folder / "checkpoints").iterdir()))
    except OSError:
        return False


def _is_whole(checkpoint: Path) -> bool:
    """Whether a checkpoint is none of the trainer's that was never finished."""
    is_trainers = checkpoint.name.startswith("step-")
    return not is_trainers or (checkpoint / "checkpoint.json").exists()


def _elsewhere(folder: Path) -> str | None:
    """Return where in the cloud a job lies, which is taken to have checkpoints, or None."""
    try:
        where = (folder / CLOUD_POINTER_FILE).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None
    return where if _IN_A_BUCKET.fullmatch(where) else None


def _age(folder: Path) -> tuple[str, int]:
    """Return what sorts ids as YYYYMMDD-HHMMSS, YYYYMMDD-HHMMSS-2, …-10 by age."""
    day, _, rest = folder.name.partition("-")
    time_of_day, _, number = rest.partition("-")
    return f"{day}-{time_of_day}", int(number) if number.isdecimal() else 1


def _named(project: Path, which: str) -> Path:
    by_id = project / LOCAL_JOBS / which
    folder = by_id if _is_bare_name(which) and by_id.is_dir() else project / which
    if not folder.is_dir():
        raise DistlaunchError(
            f"--resume: {which!r} is neither a job in {LOCAL_JOBS} nor a folder; "
            "give a job's id or path, or nothing for the newest"
        )
    return folder


def _is_bare_name(which: str) -> bool:
    return which == Path(which).name and which != ".."


def _made_anew(jobs: Path) -> Path:
    """Make a folder for this moment that no other run has."""
    _make_plain(jobs, parents=True, exist_ok=True)
    for name in _ids():
        try:
            _make_plain(jobs / name)
        except FileExistsError:
            continue
        _make(jobs / name)
        return jobs / name
    raise AssertionError  # the ids never end


def _ids() -> Iterator[str]:
    now = time.strftime("%Y%m%d-%H%M%S")
    yield now
    number = 1
    while True:
        number += 1
        yield f"{now}-{number}"


def _make(folder: Path) -> None:
    """Make a folder, with that for the tasks' output in it, and see that it can be written."""
    for each in (folder, folder / TASK_LOGS):
        _make_plain(each, parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK) or not os.access(folder / TASK_LOGS, os.W_OK):
        raise DistlaunchError(
            f"{_shown(folder)}: the job folder cannot be written; choose another --job-dir"
        )


def _make_plain(folder: Path, *, parents: bool = False, exist_ok: bool = False) -> None:
    """Make a folder; where there may be none before, FileExistsError is raised if there is one."""
    try:
        folder.mkdir(parents=parents, exist_ok=exist_ok)
    except FileExistsError as problem:
        if not exist_ok:
            raise
        in_the_way = Path(problem.filename)
        raise DistlaunchError(
            f"{_shown(in_the_way)}: not a folder; choose another --job-dir"
        ) from None
    except OSError as problem:
        raise _cannot_be_written(folder, problem) from None


def _tell_where(folder: Path, where: str) -> None:
    try:
        (folder / CLOUD_POINTER_FILE).write_text(f"{where}\n", encoding="utf-8")
    except OSError as problem:
        raise _cannot_be_written(folder, problem) from None


def _cannot_be_written(folder: Path, problem: OSError) -> DistlaunchError:
    return DistlaunchError(
        f"{_shown(folder)}: the job folder cannot be written ({os_reason(problem)}); "
        "choose another --job-dir"
    )


def _need_bucket(path: str) -> None:
    if not _IN_A_BUCKET.fullmatch(path):
        raise UsageError(f"{path}: no bucket is named; expected gs://BUCKET/FOLDER")


def _is_in_the_cloud(path: str) -> bool:
    return path.startswith(_IN_THE_CLOUD)


def _shown(folder: Path) -> str:
    """Return a path as it is shortest to read from here."""
    here = Path.cwd()
    return str(folder.relative_to(here) if folder.is_relative_to(here) else folder)
