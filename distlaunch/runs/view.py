"""A local run or a job in the cloud as plain data, alike for both."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch import files, timestamps
from distlaunch.errors import GoogleError
from distlaunch.job.vertex import fields
from distlaunch.paths import LOCAL_JOBS
from distlaunch.runs.record import FILE_NAME, read_record
from distlaunch.summary import as_number, epochs_of, logs_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.engines.vertex.client import Session
    from distlaunch.submit.lookup import LocatedJob


UNKNOWN = "UNKNOWN"  # the state of a run whose record cannot be read


@dataclass(frozen=True, slots=True)
class RunView:
    """What is known of a run or job; the fields are the keys of ``show --json``."""

    kind: str  # run or job
    id: str
    state: str
    started: str | None = None  # RFC 3339, as all times
    ended: str | None = None
    seconds: float | None = None  # from start to end
    tasks: str = ""  # in words
    job_dir: str | None = None
    command: str = ""
    image: str | None = None
    error: str | None = None
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


def view_job(located: LocatedJob) -> RunView:
    """Return a job in the cloud, with the ``summary.json`` of its folder."""
    from distlaunch.price import cost_so_far
    from distlaunch.runs import job_status

    job, record = located.job, located.record
    status = job_status.as_json(job, located.jobs.project, located.jobs.session.endpoint)
    times = ("created", "QUEUED"), ("started", "RUNNING"), ("ended", str(status["state"]))
    pools = [pool for pool in status["pools"] if pool["count"]]
    spec = fields.job_spec(job)
    return RunView(
        kind="job",
        id=status["id"],
        state=str(status["state"]),
        started=status["started"],
        ended=status["ended"],
        seconds=status["seconds"].get("running"),
        tasks=" + ".join(f"{each['pool']} {each['count']} x {each['machine']}" for each in pools),
        job_dir=status["job_dir"],
        image=next((pool["image"] for pool in pools), None),
        error=status["error"],
        cost=cost_so_far(job, located.jobs.project, Path.cwd()),
        timeline=tuple((state, status[key]) for key, state in times if status[key]),
        configuration={
            "program": _program(spec),
            "pools": [{key: pool[key] for key in pool if key != "image"} for pool in pools],
            "scheduling": spec.get("scheduling") or {},
        },
        code={"commit": record.commit} if record else {},
        summary=_read_remote(located.jobs.session, status["job_dir"]),
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


def _program(spec: Mapping[str, Any]) -> list[str]:
    container = (spec.get("workerPoolSpecs") or [{}])[0].get("containerSpec") or {}
    return [*(container.get("command") or ["ENTRYPOINT"]), *(container.get("args") or [])]


def _describe(tasks: list[str]) -> str:
    from distlaunch.job.model import TASK_TYPES, describe_tasks

    return describe_tasks([tasks.count(name) for name in TASK_TYPES])


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        return files.read_object(path)
    except (OSError, ValueError):
        return None


def _read_remote(session: Session, job_dir: str | None) -> dict[str, Any] | None:
    from distlaunch.engines.vertex import storage

    if job_dir is None:
        return None
    with suppress(GoogleError, ValueError):
        return files.parse_object(storage.read(session, f"{job_dir}/summary.json") or b"")
    return None
