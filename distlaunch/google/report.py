"""How a job stands, as text for a person and as JSON for a script."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from distlaunch.google import jobs, times
from distlaunch.google.lookup import job_id
from distlaunch.job import reduction_server
from distlaunch.job.vertex import reading
from distlaunch.ui.console import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_POOLS = ("chief", "workers", "parameter servers", "evaluators")
_SECOND = len("2026-11-21T17:00:00")


def as_json(job: dict[str, Any], project: str) -> dict[str, Any]:
    """Return how a job stands as plain data.

    Parameters
    ----------
    job
        What Google says of it.
    project
        The project's id, for the link.
    """
    return {
        "id": job_id(job),
        "name": job["name"],
        "display_name": job.get("displayName"),
        "state": jobs.state(job),
        "created": job.get("createTime"),
        "started": job.get("startTime"),
        "ended": job.get("endTime"),
        "seconds": {state: round(took, 3) for state, took in _times(job)},
        "pools": [_pool(name, spec) for name, spec in _pools(job)],
        "trials": dict(Counter(jobs.state(trial) for trial in job.get("trials") or [])),
        "job_dir": _job_dir(job),
        "console": jobs.console_url(job, project),
        "error": jobs.error(job) or None,
    }


def describe(job: dict[str, Any], project: str) -> str:
    """Return how a job stands, a line a fact.

    Parameters
    ----------
    job
        What Google says of it.
    project
        The project's id, for the link.
    """
    facts = [
        ("job", job_id(job)),
        ("name", str(job.get("displayName") or "")),
        ("state", jobs.state(job)),
        *((state, duration(took)) for state, took in _times(job)),
        ("created", _clock_time(job.get("createTime"))),
        ("ended", _clock_time(job.get("endTime"))),
        *((name, _machines(spec)) for name, spec in _pools(job)),
        ("trials", _trials(job)),
        ("error", jobs.error(job)),
        ("job folder", _job_dir(job) or ""),
        ("link", jobs.console_url(job, project)),
    ]
    width = max(len(name) for name, _ in facts)
    return "\n".join(f"{name.ljust(width)}  {text}" for name, text in facts if text)


def listing(found: Sequence[dict[str, Any]]) -> str:
    """Return a table of jobs, one a line."""
    return _columns([("JOB", "NAME", "STATE", "CREATED", "TOOK"), *map(_row, found)])


def _row(job: dict[str, Any]) -> tuple[str, ...]:
    return (
        job_id(job),
        str(job.get("displayName") or ""),
        jobs.state(job),
        _clock_time(job.get("createTime")),
        duration(sum(took for _, took in _times(job))),
    )


def _columns(rows: Iterable[Sequence[str]]) -> str:
    listed = list(rows)
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in listed
    )


def _times(job: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return how long a job was pending and running, until now where it still is."""
    end = job.get("endTime") if jobs.has_ended(job) else times.stamp(time.time())
    start = job.get("startTime")
    found = [
        ("pending", times.between(job.get("createTime"), start or end)),
        ("running", times.between(start, end)),
    ]
    return [(state, took) for state, took in found if took is not None]


def _pools(job: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the worker pools that have machines, by what they do."""
    spec = job.get("jobSpec") or job.get("trialJobSpec") or {}
    specs, names = spec.get("workerPoolSpecs") or [], list(_POOLS)
    if reading.reduction_server(specs):
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


def _machines(pool: Mapping[str, Any]) -> str:
    """Say what a pool consists of, as ``3 x n1-standard-8 with 1 NVIDIA_TESLA_T4``."""
    told = _pool("", pool)
    accelerators = told["accelerator_count"]
    extra = f" with {accelerators} {told['accelerator']}" if accelerators else ""
    return f"{told['count']} x {told['machine']}{extra}"


def _count(pool: Mapping[str, Any]) -> int:
    return int(pool.get("replicaCount") or 0)


def _trials(job: Mapping[str, Any]) -> str:
    counts = Counter(jobs.state(trial) for trial in job.get("trials") or [])
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def _job_dir(job: Mapping[str, Any]) -> str | None:
    spec = job.get("jobSpec") or job.get("trialJobSpec") or {}
    found = (spec.get("baseOutputDirectory") or {}).get("outputUriPrefix")
    return str(found) if found else None


def _clock_time(stamp: object) -> str:
    return f"{stamp[:_SECOND].replace('T', ' ')} UTC" if isinstance(stamp, str) else ""
