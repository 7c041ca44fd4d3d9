"""A local run or a job in the cloud as plain data, alike for both."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch import timestamps
from distlaunch.engines.api import read_summary
from distlaunch.engines.vertex.client import display_endpoint
from distlaunch.errors import EngineError
from distlaunch.job.model import describe_tasks
from distlaunch.job.tasks import POOL_ROLES, TASK_TYPES
from distlaunch.local.run_folder import RUN_RECORD, RunFolder, all_runs
from distlaunch.runs.record import read_record
from distlaunch.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distlaunch.engines.api import Engine, JobStatus
    from distlaunch.failure_reasons import FailureReport
    from distlaunch.job.vertex.view import PoolRequest


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
    persistent_resource: str | None = None  # on whose machines a job runs
    reservations: tuple[str, ...] = ()  # of a job's machines: full names, or any
    job_dir: str | None = None
    console: str | None = None  # the URL of its page
    tensorboard: str | None = None  # likewise
    web_access: Mapping[str, str] = field(default_factory=dict)  # URIs of shells by tasks
    endpoint: str | None = None  # the URL that replaces Google's
    command: str = ""
    image: str | None = None
    error: str | None = None
    failure: FailureReport | None = None
    cost: Mapping[str, Any] | None = None  # of a job so far
    figures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of its tasks, the last
    timeline: tuple[tuple[str, str], ...] = ()  # states and when they began
    configuration: Mapping[str, Any] = field(default_factory=dict)
    code: Mapping[str, Any] = field(default_factory=dict)  # commit and hashes
    summary: Mapping[str, Any] | None = None  # summary.json
    logs: Mapping[str, str] = field(default_factory=dict)  # files of a run's tasks, by their names
    folder: str | None = None  # of a run, on this machine
    bytes: int | None = None  # on this machine's disk, where it was measured

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)

    @property
    def is_emulated(self) -> bool:
        """Whether it is a job of an emulator: no other endpoint is plain HTTP."""
        return (self.endpoint or "").startswith("http://")

    @property
    def facts(self) -> Summary:
        """The facts of its summary."""
        return Summary.parse(self.summary)


def local_runs(project: Path, limit: int | None = None) -> list[RunView]:
    """Return the runs in a project's folder, the newest first."""
    views: list[RunView] = []
    starts: list[float] = []  # a heap of those of the newest runs
    written = [(folder.written(), folder) for folder in all_runs(project)]
    for time_written, folder in sorted(written, key=itemgetter(0), reverse=True):
        if len(starts) == limit and starts[0] > time_written:
            break  # a run starts before its record is written
        view = view_run(folder)
        views.append(view)
        heapq.heappush(starts, timestamps.parse_or(view.started, 0.0))
        if limit is not None and len(starts) > limit:
            heapq.heappop(starts)
    views.sort(key=lambda view: (view.started or "", view.id), reverse=True)
    return views[:limit]


def view_run(folder: RunFolder) -> RunView:
    """Return the run in a folder, of which only that is known if its record is damaged."""
    record = read_record(folder)
    if record is None:
        error = f"{RUN_RECORD} cannot be read"
        return RunView("run", folder.id, UNKNOWN, error=error, folder=str(folder.path))
    job_dir = record.job_dir if "://" in record.job_dir else str(folder.path)
    ends = [(record.state, record.ended)] if record.ended else []
    return RunView(
        kind="run",
        id=folder.id,  # the record may come from elsewhere
        state=record.state,
        started=record.started,
        ended=record.ended,
        seconds=timestamps.seconds_between(record.started, record.ended),
        tasks=describe_tasks([record.cluster.get(name, 0) for name in TASK_TYPES]),
        job_dir=job_dir,  # the project may have been moved since
        command=" ".join(record.command),
        error=f"exit code {record.exit_code}" if record.exit_code else None,
        failure=record.failure,
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
        summary=folder.summary(),
        logs={task: str(path) for task, path in folder.newest_attempt.logs().items()},
        folder=str(folder.path),
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
        tasks=_tasks(job.request.pools),
        persistent_resource=job.request.persistent_resource,
        reservations=job.request.reservations,
        trials=dict(Counter(trial.state for trial in job.trials)),
        job_dir=job.job_dir,
        console=job.console,
        tensorboard=job.tensorboard,
        web_access=job.web_access,
        endpoint=display_endpoint(engine.endpoint),
        image=next((pool.image for pool in job.request.pools), None),
        error=job.error or None,
        timeline=tuple((state, moment) for moment, state in times if moment),
        configuration={
            "program": list(job.program),
            "pools": pools,
            "scheduling": job.scheduling,
        },
    )


def view_job(job: JobStatus, engine: Engine, commit: str | None) -> RunView:
    """Return a job with the ``summary.json`` of its folder.

    `commit` is that of the project when the job was submitted, where it is known.
    """
    content = None
    with suppress(EngineError):
        content = read_summary(engine, job)
    return replace(
        view_status(job, engine),
        code={"commit": commit} if commit else {},
        summary=content,
    )


def view_job_whole(job: JobStatus, engine: Engine, commit: str | None) -> RunView:
    """Return the same with figures, why it failed, and the cost if the price files allow one."""
    view = view_job(job, engine, commit)
    return replace(with_figures(view, job, engine), failure=engine.find_failure(job))


def view_priced(job: JobStatus, engine: Engine) -> RunView:
    """Return a job, as far as its engine reports it, and its cost if that is known."""
    from distlaunch.price import cost_so_far

    return replace(view_status(job, engine), cost=cost_so_far(job, Path.cwd()))


def with_figures(view: RunView, job: JobStatus, engine: Engine) -> RunView:
    """Return the view of a job with its newest figures and its cost, as far as they are known."""
    figures = {}
    with suppress(EngineError):  # the log may not be readable
        figures = engine.read_figures(job) if job.started else {}
    return replace(view, cost=view_priced(job, engine).cost, figures=figures)


def with_disk_use(view: RunView) -> RunView:
    """Return a local run with the bytes of the files in its folder."""
    if view.folder is None:
        return view
    total = 0
    for path in Path(view.folder).rglob("*"):
        with suppress(OSError):
            total += 0 if path.is_symlink() or path.is_dir() else path.stat().st_size
    return replace(view, bytes=total)


def _tasks(pools: Sequence[PoolRequest]) -> str:
    """Return the tasks of pools in words, with their machines where there are such."""
    if any(pool.is_on_slurm for pool in pools):
        counts = {pool.role: pool.replicas for pool in pools}
        return describe_tasks([counts.get(role.field, 0) for role in POOL_ROLES])
    names = ((pool.role.replace("_", " "), pool) for pool in pools)
    return " + ".join(f"{name} {pool.replicas} x {pool.machine}" for name, pool in names)


def _pool(pool: PoolRequest) -> dict[str, Any]:
    return {
        "pool": pool.role.replace("_", " "),
        "count": pool.replicas,
        "machine": pool.machine,
        "accelerator": pool.accelerator,
        "accelerator_count": pool.accelerator_count,
    }
