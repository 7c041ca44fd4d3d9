"""The status of a job, as text and as JSON."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from distlaunch import timestamps
from distlaunch.google import jobs as google_jobs
from distlaunch.job import reduction_server
from distlaunch.job.model import POOL_ROLES
from distlaunch.job.vertex import fields
from distlaunch.text import duration, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_POOLS = tuple(role.field.replace("_", " ") for role in POOL_ROLES)
_SECOND = len("2026-11-21T17:00:00")


def as_json(job: dict[str, Any], project: str, endpoint: str | None = None) -> dict[str, Any]:
    """Return a job's status as plain data; `endpoint` is the one that replaces Google's."""
    return {
        "id": google_jobs.job_id(job),
        "name": job["name"],
        "display_name": job.get("displayName"),
        "state": google_jobs.state(job),
        "created": job.get("createTime"),
        "started": job.get("startTime"),
        "ended": job.get("endTime"),
        "seconds": {state: round(seconds, 3) for state, seconds in _durations(job)},
        "pools": [_pool(name, spec) for name, spec in _pools(job)],
        "trials": _trials(job),
        "job_dir": _job_dir(job),
        "console": google_jobs.console_url(job, project),
        "endpoint": endpoint,
        "error": google_jobs.error_message(job) or None,
    }


def describe(job: dict[str, Any], project: str, endpoint: str | None = None) -> str:
    """Return a job's status, a fact per line; at an endpoint a job has no page in the console."""
    facts = [
        ("job", google_jobs.job_id(job)),
        ("name", str(job.get("displayName") or "")),
        ("state", str(google_jobs.state(job))),
        *((state, duration(seconds)) for state, seconds in _durations(job)),
        ("created", _clock_time(job.get("createTime"))),
        ("ended", _clock_time(job.get("endTime"))),
        *((name, _machines(spec)) for name, spec in _pools(job)),
        ("trials", ", ".join(f"{count} {state}" for state, count in _trials(job).items())),
        ("error", google_jobs.error_message(job)),
        ("job folder", _job_dir(job) or ""),
        ("endpoint", endpoint or ""),
        ("link", "" if endpoint else google_jobs.console_url(job, project)),
    ]
    width = max(len(name) for name, _ in facts)
    return "\n".join(f"{name.ljust(width)}  {text}" for name, text in facts if text)


def listing(jobs: Sequence[dict[str, Any]]) -> str:
    """Return a table of jobs, one per line."""
    return table([("JOB", "NAME", "STATE", "CREATED", "TOOK"), *map(_row, jobs)], flush_left=True)


def _row(job: dict[str, Any]) -> tuple[str, ...]:
    return (
        google_jobs.job_id(job),
        str(job.get("displayName") or ""),
        str(google_jobs.state(job)),
        _clock_time(job.get("createTime")),
        duration(sum(seconds for _, seconds in _durations(job))),
    )


def _durations(job: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return how long a job was pending and running, until now if it still is."""
    end = job.get("endTime") if google_jobs.has_ended(job) else timestamps.format(time.time())
    start = job.get("startTime")
    durations = [
        ("pending", timestamps.seconds_between(job.get("createTime"), start or end)),
        ("running", timestamps.seconds_between(start, end)),
    ]
    return [(state, seconds) for state, seconds in durations if seconds is not None]


def _pools(job: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the worker pools that have machines, with their roles."""
    specs, names = _spec(job).get("workerPoolSpecs") or [], list(_POOLS)
    if fields.reduction_server(specs):
        names[reduction_server.POOL] = reduction_server.KEY.replace("_", " ")
    pools = zip(names, specs, strict=False)
    return [(name, pool) for name, pool in pools if pool and _count(pool)]


def _pool(name: str, pool: Mapping[str, Any]) -> dict[str, Any]:
    machine = pool.get("machineSpec") or {}
    return {
        "pool": name,
        "count": _count(pool),
        "machine": machine.get("machineType"),
        "accelerator": machine.get("acceleratorType"),
        "accelerator_count": int(machine.get("acceleratorCount") or 0),
        "image": (pool.get("containerSpec") or {}).get("imageUri"),
    }


def _machines(spec: Mapping[str, Any]) -> str:
    """Return the machines of a pool, such as ``3 x n1-standard-8 with 1 NVIDIA_TESLA_T4``."""
    pool = _pool("", spec)
    accelerators = pool["accelerator_count"]
    suffix = f" with {accelerators} {pool['accelerator']}" if accelerators else ""
    return f"{pool['count']} x {pool['machine']}{suffix}"


def _count(pool: Mapping[str, Any]) -> int:
    return int(pool.get("replicaCount") or 0)


def _trials(job: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of trials by their state."""
    return dict(Counter(trial.get("state", "UNSPECIFIED") for trial in job.get("trials") or []))


def _spec(job: Mapping[str, Any]) -> Mapping[str, Any]:
    return job.get("jobSpec") or job.get("trialJobSpec") or {}


def _job_dir(job: Mapping[str, Any]) -> str | None:
    uri = (_spec(job).get("baseOutputDirectory") or {}).get("outputUriPrefix")
    return str(uri) if uri else None


def _clock_time(timestamp: object) -> str:
    return f"{timestamp[:_SECOND].replace('T', ' ')} UTC" if isinstance(timestamp, str) else ""
