"""The tasks of a job: their types and names, and the role of each worker pool."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from distlaunch.errors import UsageError

TaskType = Literal["chief", "worker", "ps", "evaluator"]
_TASK_NAME = re.compile(r"(worker|ps|evaluator):(0|[1-9][0-9]*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class PoolRole:
    """The role of one worker pool, with its name in each place."""

    task_type: TaskType  # in task names and TF_CONFIG
    field: str  # in distlaunch.yaml's `cluster` section, and the attribute of `Cluster`
    worker_pool: str  # in Google's logs and CLUSTER_SPEC
    ai_platform: str  # in AI Platform's fields: masterType, parameterServerCount
    noun: str  # in messages


POOL_ROLES = (
    PoolRole("chief", "chief", "workerpool0", "master", "chief"),
    PoolRole("worker", "workers", "workerpool1", "worker", "worker"),
    PoolRole("ps", "parameter_servers", "workerpool2", "parameterServer", "parameter server"),
    PoolRole("evaluator", "evaluators", "workerpool3", "evaluator", "evaluator"),
)
"""The roles in the order of Google's ``workerPoolSpecs``."""

TASK_TYPES = tuple(role.task_type for role in POOL_ROLES)


@dataclass(frozen=True, slots=True)
class Task:
    """One process of a job; `index` counts the tasks of a type from 0."""

    type: TaskType
    index: int = 0

    @classmethod
    def parse(cls, name: str) -> Task:
        """Parse a task's name, such as ``worker:1``."""
        if name == "chief":
            return cls("chief")
        match = _TASK_NAME.fullmatch(name)
        if match is None:
            raise UsageError(
                f"{name!r} is not a task; expected chief, worker:N, ps:N or evaluator:N"
            )
        task_type: Any = match[1]
        return cls(task_type, int(match[2]))

    @property
    def is_training(self) -> bool:
        """Whether it is the chief or a worker."""
        return self.type in ("chief", "worker")

    def __str__(self) -> str:
        return self.type if self.type == "chief" else f"{self.type}:{self.index}"
