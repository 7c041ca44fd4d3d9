"""``run.json`` in the folder of a local run: what was run, and how it ended."""

from __future__ import annotations

import json
import math
import platform
import sys
import time
from collections import Counter
from collections.abc import Mapping  # noqa: TC003 - pydantic reads the types
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

from distlaunch import __version__, files, timestamps
from distlaunch.errors import STOPPED_CODES
from distlaunch.failure_reasons import FailureReport  # noqa: TC001 - pydantic reads the types
from distlaunch.local.run_folder import RUN_RECORD
from distlaunch.redaction import redact, redact_words
from distlaunch.source_version import commit_of, has_changes, hash_files

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import TypeAdapter

    from distlaunch.job.model import Job
    from distlaunch.local.run_folder import RunFolder
    from distlaunch.local.run_plan import RunSpec

RUNNING, SUCCEEDED, FAILED, CANCELLED = "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"

_PACKAGES = ("tensorflow", "tensorflow-cpu", "keras")


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A local run; the fields are the keys of its file. Times are RFC 3339 in UTC."""

    id: str
    started: str
    state: str = RUNNING
    ended: str | None = None
    exit_code: int | None = None
    failure: FailureReport | None = None
    command: tuple[str, ...] = ()  # of the launcher
    program: tuple[str, ...] = ()  # of each task
    cluster: Mapping[str, int] = field(default_factory=dict)  # tasks by type
    job_dir: str = ""
    job: Mapping[str, Any] | None = None  # the job file with overrides; values of env redacted
    commit: str | None = None
    has_changes: bool | None = False  # whether tracked files differ from the commit
    code: str = ""  # a hash of the module's package, or of the files that the program names
    requirements: str = ""  # a hash of requirements.txt
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: str = ""


def start_record(spec: RunSpec, job: Job | None, machine: str) -> RunRecord:
    """Write the record of a run that starts, and return it; OSError is raised."""
    folder, program = spec.work_dir, spec.program
    record = RunRecord(
        id=spec.folder.id,
        started=timestamps.format(time.time()),
        command=("distlaunch", *redact_words(sys.argv[1:])),
        program=program.words,
        cluster=dict(Counter(task.type for task in spec.cluster.tasks())),
        job_dir=spec.folder.job_dir,
        job=_plain_job(job) if job else None,
        commit=commit_of(folder),
        has_changes=has_changes(folder),
        code=hash_files(folder, _code_files(spec)),
        requirements=hash_files(folder, folder.glob("requirements*.txt")),
        versions=installed_versions(),
        machine=machine,
    )
    _write(spec.folder, record)
    return record


def end_record(
    record: RunRecord, folder: RunFolder, exit_code: int, failure: FailureReport | None
) -> None:
    """Write how a run ended; OSError is raised."""
    state = {0: SUCCEEDED, **dict.fromkeys(STOPPED_CODES, CANCELLED)}.get(exit_code, FAILED)
    ended = timestamps.format(time.time())
    record = replace(record, state=state, ended=ended, exit_code=exit_code, failure=failure)
    _write(folder, record)


def read_record(folder: RunFolder) -> RunRecord | None:
    """Return the record in a run's folder; None if there is no valid one.

    A run that was killed with its launcher has no end, and is CANCELLED.
    """
    try:
        record = _validator().validate_json(files.read_regular(folder.path / RUN_RECORD))
    except (OSError, ValueError):
        return None
    if timestamps.parse_or(record.started, math.inf) == math.inf:
        return None
    is_lost = record.state == RUNNING and not files.may_be_locked(folder.lock_file)
    return replace(record, state=CANCELLED) if is_lost else record


@cache
def _validator() -> TypeAdapter[RunRecord]:
    from pydantic import TypeAdapter

    return TypeAdapter(RunRecord)


def _write(folder: RunFolder, record: RunRecord) -> None:
    """Write a record; bytes of paths and arguments that are not UTF-8 become question marks."""
    text = json.dumps(asdict(record), indent=2, ensure_ascii=False) + "\n"
    files.atomic_write(folder.path / RUN_RECORD, text.encode(errors="replace"), is_private=True)


def _plain_job(job: Job) -> dict[str, Any]:
    """Return a job as JSON data without empty fields and the values of variables."""
    plain = redact(json.loads(json.dumps(asdict(job), default=str)))
    return {name: value for name, value in plain.items() if value not in (None, {}, [])}


def installed_versions() -> dict[str, str]:
    """Return the versions of distlaunch, Python, TensorFlow and Keras here."""
    versions = {"distlaunch": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _code_files(spec: RunSpec) -> list[Path]:
    """Return the Python files of the module's package, and those that the arguments name."""
    folder, program = spec.work_dir, spec.program
    named = [folder / word for word in program.words]
    files = [path for path in named if path.suffix == ".py" and path.is_relative_to(folder)]
    if program.kind == "module":
        package = folder / program.words[0].partition(".")[0]
        files += [*package.rglob("*.py"), package.with_suffix(".py")]
    return [path for path in dict.fromkeys(files) if path.is_file()]
