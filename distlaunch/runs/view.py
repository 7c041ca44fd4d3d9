"""A local run or a job in the cloud as plain data, alike for both."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch import files, timestamps
from distlaunch.errors import GoogleError
from distlaunch.paths import LOCAL_JOBS
from distlaunch.runs.record import FILE_NAME, read_record
from distlaunch.summary import as_number, epochs_of, logs_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.engines.api import Engine, JobStatus
    from distlaunch.failure_reasons import FailureReport
    from distlaunch.job.vertex.view import PoolRequest
    from distlaunch.submit.lookup import LocatedJob


UNKNOWN = "UNKNOWN"  # the state of a run whose record cannot be read


@dataclass(frozen=True, slots=True)
class RunView:
    """What is known of a run or job; the fields are the keys of ``show --json``."""

    kind: str  # run or job
    id: str
    state: str
    name: str | None = None  # of a job: the engine's
    display_name: str | None = None
    created: str | None = None  # RFC 3339, as all times
    started: str | None = None
    ended: str | None = None
    waited: float | None = None  # seconds before a job started
    seconds: float | None = None  # from start to end
    tasks: str = ""  # in words
    trials: Mapping[str, int] = field(default_factory=dict)  # of a tuning job, by their states
    job_dir: str | None = None
    console: str | None = None  # the URL of its page
    tensorboard: str | None = None  # likewise
    endpoint: str | None = None  # the URL that replaces Google's
    command: str = ""
    image: str | None = None
    error: str | None = None
    failure: FailureReport | None = None  # of a job
    cost: Mapping[str, Any] | None = None  # of a job so far
    timeline: tuple[tuple[str, str], ...] = ()  # states and when they began
    configuration: Mapping[str, Any] = field(default_factory=dict)
    code: Mapping[str, Any] = field(default_factory=dict)  # commit and hashes
    summary: Mapping[str, Any] | None = None  # summary.json
    folder: str | None = None  # of a run, on this machine
    bytes: int | None = None  # on this machine's disk, where it was measured

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)

    @property
    def metrics(self) -> dict[str, float]:
        """The numbers of the last epoch's logs."""
        last = epochs_of(self.summary or {})[-1:]
        numbers = (
            (name, as_number(value)) for each in last for name, value in logs_of(each).items()
        )
        return {name: value for name, value in numbers if value is not None}


def local_runs(project: Path) -> list[RunView]:
    """Return the runs in a project's folder, the newest first."""
    paths = (project / LOCAL_JOBS).glob(f"*/{FILE_NAME}")
    folders = [path.parent for path in paths if not path.parent.is_symlink()]
    return sorted(
        map(view_run, folders), key=lambda view: (view.started or "", view.id), reverse=True
    )


def find_run(project: Path, name: str) -> RunView | None:
    """Return a local run by its id or the path of its folder."""
    for folder in (project / LOCAL_JOBS / name, project / name):
        if (folder / FILE_NAME).is_file():
            return view_run(folder)
    return None


def view_run(folder: Path) -> RunView:
    """Return the run in a folder, of which only that is known if its record is damaged."""
    record = read_record(folder)
    if record is None:
        error = f"{FILE_NAME} cannot be read"
        return RunView("run", folder.name, UNKNOWN, error=error, folder=str(folder))
    job_dir = record.job_dir if "://" in record.job_dir else str(folder)
    tasks = [name for name, count in record.cluster.items() for _ in range(count)]
    ends = [(record.state, record.ended)] if record.ended else []
    return RunView(
        kind="run",
        id=folder.name,  # the record may come from elsewhere
        state=record.state,
        started=record.started,
        ended=record.ended,
        seconds=timestamps.seconds_between(record.started, record.ended),
        tasks=_describe(tasks),
        job_dir=job_dir,  # the project may have been moved since
        command=" ".join(record.command),
        error=f"exit code {record.exit_code}" if record.exit_code else None,
        timeline=(("RUNNING", record.started), *ends),
        configuration={
            "program": list(record.program),
            "cluster": dict(record.cluster),
            "job": dict(record.job or {}),
            "versions": dict(record.versions),
            "machine": record.machine,
        },
        code={
            "commit": record.commit,
            "has_changes": record.has_changes,
            "files": record.code,
            "requirements": record.requirements,
        },
        summary=_read_json(folder / "summary.json"),
        folder=str(folder),
    )


def view_status(job: JobStatus, engine: Engine) -> RunView:
    """Return a job, as far as its engine reports it."""
    now = timestamps.format(time.time())
    times = (job.created, "QUEUED"), (job.started, "RUNNING"), (job.ended, str(job.state))
    pools = [_pool(pool) for pool in job.request.pools]
    return RunView(
        kind="job",
        id=job.id,
        state=str(job.state),
        name=job.name,
        display_name=job.display_name,
        created=job.created,
        started=job.started,
        ended=job.ended,
        waited=job.wait_seconds(now),
        seconds=job.run_seconds(now),
        tasks=" + ".join(f"{each['pool']} {each['count']} x {each['machine']}" for each in pools),
        trials=dict(Counter(trial.state for trial in job.trials)),
        job_dir=job.job_dir,
        console=job.console,
        tensorboard=job.tensorboard,
        endpoint=engine.endpoint,
        image=next((pool.image for pool in job.request.pools), None),
        error=job.error or None,
        timeline=tuple((state, moment) for moment, state in times if moment),
        configuration={
            "program": list(job.program),
            "pools": pools,
            "scheduling": job.scheduling,
        },
    )


def view_job(located: LocatedJob) -> RunView:
    """Return a job with its cost, why it failed, and the ``summary.json`` of its folder."""
    from distlaunch.price import cost_so_far

    job, engine, record = located.job, located.engine, located.record
    return replace(
        view_status(job, engine),
        cost=cost_so_far(job, Path.cwd()),
        failure=engine.find_failure(job),
        code={"commit": record.commit} if record else {},
        summary=_read_remote(engine, job.job_dir),
    )


def with_disk_use(view: RunView) -> RunView:
    """Return a local run with the bytes of the files in its folder."""
    if view.folder is None:
        return view
    total = 0
    for path in Path(view.folder).rglob("*"):
        with suppress(OSError):
            total += 0 if path.is_symlink() or path.is_dir() else path.stat().st_size
    return replace(view, bytes=total)


def _pool(pool: PoolRequest) -> dict[str, Any]:
    return {
        "pool": pool.role.replace("_", " "),
        "count": pool.replicas,
        "machine": pool.machine,
        "accelerator": pool.accelerator,
        "accelerator_count": pool.accelerator_count,
    }


def _describe(tasks: list[str]) -> str:
    from distlaunch.job.model import TASK_TYPES, describe_tasks

    return describe_tasks([tasks.count(name) for name in TASK_TYPES])


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        return files.read_object(path)
    except (OSError, ValueError):
        return None


def _read_remote(engine: Engine, job_dir: str | None) -> dict[str, Any] | None:
    if job_dir is None:
        return None
    with suppress(GoogleError, ValueError):
        return files.parse_object(engine.read_file(f"{job_dir.rstrip('/')}/summary.json") or b"")
    return None
