"""The folder of a local job: new or resumed, and its summary."""

from __future__ import annotations

import os
import re
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch import files
from distlaunch.errors import DistlaunchError, UsageError, os_reason
from distlaunch.job.job_dir import check_scheme
from distlaunch.job.yaml_document import display_path
from distlaunch.paths import FOLDER, LOCAL_JOBS

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLOUD_POINTER = "job-dir"  # the file with the URI of a job that has only its output here
_CLOUD = "gs://"
_BUCKET_URI = re.compile(r"gs://[^/]+(/.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class JobFolder:
    """Where a job writes."""

    job_dir: str  # an absolute local path or gs://…
    path: Path  # of its folder on this machine, which has only its output if it is in the cloud

    @property
    def job_id(self) -> str:
        """The name of the folder."""
        return self.path.name

    @property
    def logs_dir(self) -> Path:
        """The folder for the tasks' output."""
        return self.path / "task-logs"

    def summary_version(self) -> tuple[int, int] | None:
        """Return a value that changes when ``summary.json`` is written; None without one."""
        try:
            status = self._summary.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def summary(self) -> dict[str, Any] | None:
        """Return the contents of the job's ``summary.json``, if it can be read."""
        try:
            return files.read_object(self._summary)
        except (OSError, ValueError):
            return None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other runs out of this job folder, if the file system has locks."""
        with ExitStack() as stack:
            try:
                stack.enter_context(files.lock(self.logs_dir / ".lock", wait=False))
            except BlockingIOError:
                raise DistlaunchError(
                    f"{display_path(self.path)}: another 'distlaunch local' runs in this folder; "
                    "wait for it or choose another --job-dir"
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
    """Create and return the job folder of `--resume`, `--job-dir` or the job file.

    Raises
    ------
    UsageError
        If two folders are requested, or one with another URI scheme.
    DistlaunchError
        If there is no such job, or its folder cannot be written.
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


def new(project: Path, job_dir: str | None) -> JobFolder:
    """Create the folder of a new job, by default one of the project's."""
    if job_dir and not job_dir.startswith(_CLOUD):
        path = Path(os.path.abspath(project / job_dir))  # noqa: PTH100 - symlinks stay
        return _create(project, str(path), path)
    if job_dir and not _BUCKET_URI.fullmatch(job_dir):
        raise UsageError(f"{job_dir}: no bucket is named; expected gs://BUCKET/FOLDER")
    path = create_numbered(project, LOCAL_JOBS)
    if job_dir is None:
        return _create(project, str(path), path)
    uri = job_dir.rstrip("/")
    with _writing(path):
        (path / _CLOUD_POINTER).write_text(f"{uri}\n", encoding="utf-8")
    return _create(project, uri, path)


def resumed(project: Path, job: str) -> JobFolder:
    """Return the folder of a job to resume: an id, a path, ``gs://…`` or nothing for the newest."""
    if job.startswith(_CLOUD):
        return new(project, job)
    path = _named(project, job) if job else _newest(project)
    uri = _cloud_uri(path)
    if uri:
        return _create(project, uri, path)
    if not _has_checkpoints(path):
        raise _nothing_to_resume(f"{display_path(path)} has no checkpoints to resume from")
    return new(project, str(path))


def _newest(project: Path) -> Path:
    try:
        jobs = sorted((project / LOCAL_JOBS).iterdir(), key=_age, reverse=True)
    except OSError:
        jobs = []
    for job in jobs:
        if _cloud_uri(job) or _has_checkpoints(job):
            return job
    raise _nothing_to_resume(f"no job in {LOCAL_JOBS} has checkpoints to resume from")


def _nothing_to_resume(problem: str) -> DistlaunchError:
    return DistlaunchError(f"--resume: {problem}; start a new run without --resume")


def _age(folder: Path) -> list[int]:
    """Return a key that sorts the ids YYYYMMDD-HHMMSS, YYYYMMDD-HHMMSS-2, …-10 by age."""
    return [int(number) for number in re.findall(r"\d+", folder.name, re.ASCII)]


def _has_checkpoints(folder: Path) -> bool:
    try:
        return any(map(_is_complete, (folder / "checkpoints").iterdir()))
    except OSError:
        return False


def _is_complete(checkpoint: Path) -> bool:
    """Whether the trainer has finished a checkpoint; those of other programs count as finished."""
    is_trainers = checkpoint.name.startswith("step-")
    return not is_trainers or (checkpoint / "checkpoint.json").exists()


def _cloud_uri(folder: Path) -> str | None:
    """Return the ``gs://`` URI of a job that has only its output here, None for other jobs."""
    try:
        uri = files.read_regular(folder / _CLOUD_POINTER).decode().strip()
    except (OSError, ValueError):
        return None
    return uri if _BUCKET_URI.fullmatch(uri) else None


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


def _create(project: Path, job_dir: str, path: Path) -> JobFolder:
    """Create a job folder with that of the tasks' output.

    One of distlaunch's own may come with a cloned project, and the trainer writes into its folders.
    """
    folder = JobFolder(job_dir, path)
    is_own = path.is_relative_to(project / FOLDER)
    with _writing(path):
        files.make_folder(folder.logs_dir, below=project if is_own else path)
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
