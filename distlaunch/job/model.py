"""A job: what to run and where, as plain frozen data."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from distlaunch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TaskType = Literal["chief", "worker", "ps", "evaluator"]
Strategy = Literal["STANDARD", "SPOT", "FLEX_START"]
Scale = Literal["linear", "log", "reverse_log"]

TASK_TYPES: tuple[TaskType, ...] = get_args(TaskType)
_TASK_NAME = re.compile(r"(worker|ps|evaluator):(0|[1-9][0-9]*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Task:
    """One process of a job.

    Parameters
    ----------
    type
        What it does.
    index
        Its place among the tasks of its type, from 0. There is one chief only.
    """

    type: TaskType
    index: int = 0

    @classmethod
    def parse(cls, name: str) -> Task:
        """Read a task from its name.

        Raises
        ------
        UsageError
            If this is no task's name.
        """
        if name == "chief":
            return cls("chief")
        found = _TASK_NAME.fullmatch(name)
        if found is None:
            raise UsageError(
                f"{name!r} is not a task; expected chief, worker:N, ps:N or evaluator:N"
            )
        kind: Any = found[1]
        return cls(kind, int(found[2]))

    @property
    def is_training(self) -> bool:
        """Whether it is one of those that train together: the chief and the workers."""
        return self.type in ("chief", "worker")

    def __str__(self) -> str:
        return self.type if self.type == "chief" else f"{self.type}:{self.index}"


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine type of Google's, with the accelerators on one such machine."""

    type: str
    accelerator: str | None = None
    accelerator_count: int = 0

    @property
    def gpu_count(self) -> int:
        """The number of GPUs on one such machine."""
        is_gpu = self.accelerator is not None and self.accelerator.startswith("NVIDIA")
        return max(0, self.accelerator_count) if is_gpu else 0


@dataclass(frozen=True, slots=True)
class Program:
    """What the containers of a pool run where that is not the job's own image, module and args.

    Parameters
    ----------
    image
        The container image, None for the job's.
    command
        What replaces the image's entrypoint, if anything.
    args
        What the entrypoint is given.
    env
        Variables beside the job's.
    module, packages
        A module in Python packages (``gs://…``) that Google installs into `image` before it starts,
        where the pool is one of Google's pythonPackageSpec.
    """

    image: str | None = None
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    module: str | None = None
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pool:
    """Several machines of one kind, each with one task.

    Parameters
    ----------
    program
        What runs there, None for what the job says of all its tasks.
    """

    machine: Machine
    count: int = 1
    program: Program | None = None


@dataclass(frozen=True, slots=True)
class Cluster:
    """The machines of a job, by what they do."""

    chief: Pool
    workers: Pool | None = None
    parameter_servers: Pool | None = None
    evaluators: Pool | None = None

    def tasks(self) -> tuple[Task, ...]:
        """All tasks: the chief, the workers, the parameter servers, the evaluators."""
        return tuple(Task(kind, index) for kind in TASK_TYPES for index in range(self._count(kind)))

    @property
    def task_count(self) -> int:
        """How many tasks there are, in whatever number."""
        return sum(map(self._count, TASK_TYPES))

    def with_training_tasks(self, count: int) -> Cluster:
        """Return this cluster with `count` training tasks in all, the chief among them.

        Raises
        ------
        UsageError
            If there would be no chief.
        """
        if count < 1:
            raise UsageError(f"expected 1 training task or more, got {count}")
        machine = (self.workers or self.chief).machine
        return replace(self, workers=Pool(machine, count - 1) if count > 1 else None)

    def map_pools(self, change: Callable[[Pool], Pool]) -> Cluster:
        """Return this cluster with a function applied to each pool."""
        others = (self.workers, self.parameter_servers, self.evaluators)
        return Cluster(change(self.chief), *(pool and change(pool) for pool in others))

    def describe(self) -> str:
        """Say what it consists of, as ``chief + 2 workers + 1 parameter server``."""
        counted = [
            _plural(self._count("worker"), "worker"),
            _plural(self._count("ps"), "parameter server"),
            _plural(self._count("evaluator"), "evaluator"),
        ]
        return " + ".join(["chief", *filter(None, counted)])

    def _count(self, kind: TaskType) -> int:
        pools: dict[TaskType, Pool | None] = {
            "chief": self.chief,
            "worker": self.workers,
            "ps": self.parameter_servers,
            "evaluator": self.evaluators,
        }
        pool = pools[kind]
        return pool.count if pool else 0


@dataclass(frozen=True, slots=True)
class Image:
    """What the container image is made of, and the repository it is pushed to.

    Parameters
    ----------
    repository
        ``HOST/PATH`` without a tag.
    base
        The image that it begins with.
    requirements
        The file with what pip installs, relative to the project's folder.
    include
        Files and folders of the project that go into the image, beside the module's own package.
    allow_secrets
        Files that go into the image although they look like secrets.
    dockerfile
        A Dockerfile of the user's own, which then says all of this.
    uri
        An image that is there already: nothing is built.
    """

    repository: str | None = None
    base: str | None = None
    requirements: str | None = None
    include: tuple[str, ...] = ()
    allow_secrets: tuple[str, ...] = ()
    dockerfile: str | None = None
    uri: str | None = None


@dataclass(frozen=True, slots=True)
class Scheduling:
    """How Google starts and ends the job; times are in seconds, None for Google's default."""

    strategy: Strategy = "STANDARD"
    timeout: int | None = None
    max_wait: int | None = None


@dataclass(frozen=True, slots=True)
class ReductionServer:
    """Google's all-reduce for GPU workers, on machines of its own.

    Parameters
    ----------
    replicas
        How many; None for as many as the machines of the cluster need.
    """

    replicas: int | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """A tuned parameter that is a number between two others."""

    minimum: float
    maximum: float
    whole: bool = False
    scale: Scale = "linear"


@dataclass(frozen=True, slots=True)
class Choice:
    """A tuned parameter that is one of some values.

    Parameters
    ----------
    values
        The values, as the program gets them.
    numeric
        Whether they are numbers to the search, which then knows which of them are near each other.
    scale
        How near, where they are numbers.
    """

    values: tuple[str, ...]
    numeric: bool = False
    scale: Scale = "linear"


@dataclass(frozen=True, slots=True)
class Tuning:
    """A search for the best values of some of the program's options."""

    metric: str
    goal: Literal["maximize", "minimize"]
    parameters: Mapping[str, Span | Choice]
    trials: int
    parallel_trials: int = 1
    algorithm: Literal["bayesian", "grid", "random"] = "bayesian"


@dataclass(frozen=True, slots=True)
class Job:
    """What to run and where.

    Parameters
    ----------
    name
        What the job is called; a part of every path it writes to.
    module
        The Python module that is the program, with `args` for it.
    bucket
        ``gs://…``; the job writes to BUCKET/NAME/JOB_ID.
    vertex
        Any other field of Google's job (a CustomJob, or a HyperparameterTuningJob where the job is
        tuned), in Google's JSON names; what this class has a field for lies over it.
    """

    name: str
    cluster: Cluster
    module: str = "trainer.task"
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    project: str | None = None
    region: str | None = None
    bucket: str | None = None
    image: Image = field(default_factory=Image)
    scheduling: Scheduling = field(default_factory=Scheduling)
    labels: Mapping[str, str] = field(default_factory=dict)
    service_account: str | None = None
    network: str | None = None
    tensorboard: str | None = None
    reduction_server: ReductionServer | None = None
    tuning: Tuning | None = None
    vertex: Mapping[str, Any] = field(default_factory=dict)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}" if count else ""
