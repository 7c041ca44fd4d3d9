"""What the parts of one of Google's jobs say, in the words of ours.

All of these take plain data in Google's JSON names, as `google.messages.parse` gives it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from distlaunch.job.model import Machine, Pool, Program, ReductionServer, Strategy
from distlaunch.job.names import job_name
from distlaunch.job.reduction_server import POOL, is_image

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TASKS = ("containerSpec", "pythonPackageSpec")
TUNED = frozenset(
    {"studySpec", "trialJobSpec", "maxTrialCount", "parallelTrialCount", "maxFailedTrialCount"}
)  # what only a HyperparameterTuningJob has

_STRATEGIES: dict[str, Strategy] = {
    "STRATEGY_UNSPECIFIED": "STANDARD",
    "ON_DEMAND": "STANDARD",  # Google's older words
    "LOW_COST": "SPOT",
    "STANDARD": "STANDARD",
    "SPOT": "SPOT",
    "FLEX_START": "FLEX_START",
}


def name(body: Mapping[str, Any]) -> str | None:
    """Return the name that a job's display name stands for, None without one."""
    shown = body.get("displayName")
    return job_name(shown) if shown else None


def pool(spec: Mapping[str, Any]) -> Pool | None:
    """Return a pool, None for one that is skipped."""
    if not spec or spec.get("replicaCount") == 0:
        return None
    return Pool(machine(spec), spec.get("replicaCount", 1), program(spec))


def reduction_server(specs: Sequence[Mapping[str, Any]]) -> ReductionServer | None:
    """Return the Reduction Server among a job's worker pools, None without one."""
    spec = specs[POOL] if len(specs) > POOL else {}
    if not is_reduction_server(spec) or spec.get("replicaCount") == 0:
        return None
    return ReductionServer(int(spec.get("replicaCount", 1)))


def is_reduction_server(spec: Mapping[str, Any]) -> bool:
    """Return whether a worker pool runs Google's Reduction Server."""
    return is_image((spec.get("containerSpec") or {}).get("imageUri"))


def machine(spec: Mapping[str, Any]) -> Machine:
    """Return a pool's machine."""
    there = spec.get("machineSpec", {})
    accelerator = there.get("acceleratorType", "ACCELERATOR_TYPE_UNSPECIFIED")
    return Machine(
        there.get("machineType", ""),
        None if accelerator == "ACCELERATOR_TYPE_UNSPECIFIED" else accelerator,
        there.get("acceleratorCount", 0),
    )


def program(spec: Mapping[str, Any]) -> Program | None:
    """Return what a pool runs, None where it does not say anything of it."""
    if "pythonPackageSpec" in spec:
        there = spec["pythonPackageSpec"]
        return Program(
            image=there.get("executorImageUri") or None,
            args=tuple(there.get("args", ())),
            env=env(there),
            module=there.get("pythonModule", ""),
            packages=tuple(there.get("packageUris", ())),
        )
    there = spec.get("containerSpec", {})
    if not any(there.values()):
        return None
    return Program(
        image=there.get("imageUri") or None,
        command=tuple(there.get("command", ())),
        args=tuple(there.get("args", ())),
        env=env(there),
    )


def task_of(program: Program) -> str:
    """Return under what a pool says what it runs."""
    return "containerSpec" if program.module is None else "pythonPackageSpec"


def env(task: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of a pool's program."""
    return {each.get("name", ""): each.get("value", "") for each in task.get("env", [])}


def strategy(scheduling: Mapping[str, Any]) -> Strategy:
    """Return how a job is scheduled."""
    return _STRATEGIES[scheduling.get("strategy", "STRATEGY_UNSPECIFIED")]


def seconds(there: Mapping[str, Any], field: str) -> int | None:
    """Return a duration in whole seconds, rounded up, None without one."""
    return math.ceil(float(there[field].removesuffix("s"))) if field in there else None
