"""The status of a job, as text and as JSON."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from distlaunch import timestamps
from distlaunch.engines.vertex import jobs as google_jobs
from distlaunch.job import reduction_server
from distlaunch.job.model import POOL_ROLES
from distlaunch.job.vertex import fields
from distlaunch.text import duration, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def as_json(job: dict[str, Any], project: str, endpoint: str | None = None) -> dict[str, Any]:
    """Return a job's status as plain data; `endpoint` is the one that replaces Google's."""
    spec = fields.job_spec(job)
    trials = Counter(trial.get("state", "UNSPECIFIED") for trial in job.get("trials") or [])
    return {
        "id": google_jobs.job_id(job),
        "name": job["name"],
        "display_name": job.get("displayName"),
        "state": google_jobs.state(job),
        "created": job.get("createTime"),
        "started": job.get("startTime"),
        "ended": job.get("endTime"),
        "seconds": {state: round(seconds, 3) for state, seconds in _durations(job)},
        "pools": _pools(spec.get("workerPoolSpecs") or []),
        "trials": dict(trials),
        "job_dir": (spec.get("baseOutputDirectory") or {}).get("outputUriPrefix") or None,
        "console": google_jobs.console_url(job, project),
        "tensorboard": google_jobs.tensorboard_url(job),
        "endpoint": endpoint,
        "error": google_jobs.error_message(job) or None,
    }


def describe(job: dict[str, Any], project: str, endpoint: str | None = None) -> str:
    """Return a job's status, a fact per line; at an endpoint a job has no page in the console."""
    status = as_json(job, project, endpoint)
    facts = [
        ("job", status["id"]),
        ("name", status["display_name"]),
        ("state", str(status["state"])),
        *((state, duration(seconds)) for state, seconds in status["seconds"].items()),
        ("created", timestamps.clock_time(status["created"])),
        ("ended", timestamps.clock_time(status["ended"])),
        *((pool["pool"], _machines(pool)) for pool in status["pools"]),
        ("trials", ", ".join(f"{count} {state}" for state, count in status["trials"].items())),
        ("error", status["error"]),
        ("job folder", status["job_dir"]),
        ("endpoint", endpoint),
        ("link", None if endpoint else status["console"]),
        ("tensorboard", None if endpoint else status["tensorboard"]),
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
        timestamps.clock_time(job.get("createTime")),
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


def _pools(specs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the worker pools that have machines, with their roles."""
    names = [role.field.replace("_", " ") for role in POOL_ROLES]
    if fields.reduction_server(specs):
        names[reduction_server.POOL] = reduction_server.KEY.replace("_", " ")
    pools = [_pool(name, spec or {}) for name, spec in zip(names, specs, strict=False)]
    return [pool for pool in pools if pool["count"]]


def _pool(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    machine = spec.get("machineSpec") or {}
    return {
        "pool": name,
        "count": int(spec.get("replicaCount") or 0),
        "machine": machine.get("machineType"),
        "accelerator": machine.get("acceleratorType"),
        "accelerator_count": int(machine.get("acceleratorCount") or 0),
        "image": (spec.get("containerSpec") or {}).get("imageUri"),
    }


def _machines(pool: Mapping[str, Any]) -> str:
    """Return the machines of a pool, such as ``3 x n1-standard-8 with 1 NVIDIA_TESLA_T4``."""
    accelerators = pool["accelerator_count"]
    suffix = f" with {accelerators} {pool['accelerator']}" if accelerators else ""
    return f"{pool['count']} x {pool['machine']}{suffix}"
