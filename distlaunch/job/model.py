"""A job: what to run and where, as plain frozen data."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from distlaunch.errors import UsageError
from distlaunch.job.tasks import POOL_ROLES, TASK_TYPES, PoolRole, Task
from distlaunch.text import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Strategy = Literal["STANDARD", "SPOT", "FLEX_START"]
EngineName = Literal["vertex", "slurm"]
Builder = Literal["auto", "cloud-build"]
Scale = Literal["linear", "log", "reverse_log"]
OnStockout = Literal["next-machine", "next-region", "fail"]

# An exact version, so that the same project gives the same image next year.
DEFAULT_BASE = "python:3.12.12-slim-bookworm"
DEFAULT_REQUIREMENTS = "requirements.txt"

DEFAULT_MODULE = "trainer.task"
FIT_MODULE = "distlaunch_trainer.fit"  # runs a script that calls Keras's fit()
PERSISTENT_RESOURCE_ID = r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?"  # of Google's reference
STOP_IF = "DISTLAUNCH_STOP_IF"  # the variable of the trainer
IDLE_CODE = 80  # the exit code of tasks that `stop_if` stopped, as the trainer has it


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine type with the accelerators of one machine.

    On Slurm and Kubernetes only `gpus` counts: the type may be empty, and None are as many GPUs as
    the machine type has.
    """

    type: str
    accelerator: str | None = None
    accelerator_count: int = 0
    gpus: int | None = None

    @property
    def gpu_count(self) -> int:
        """The number of GPUs of one machine."""
        is_gpu = self.accelerator is not None and self.accelerator.startswith("NVIDIA")
        return max(0, self.accelerator_count) if is_gpu else 0

    @property
    def task_gpus(self) -> int:
        """The number of GPUs of a task on Slurm or Kubernetes."""
        return self.gpu_count if self.gpus is None else self.gpus


@dataclass(frozen=True, slots=True)
class Program:
    """What the containers of a pool run, if not the job's image, module and args.

    An image of None is the job's, and `env` is in addition to the job's. With `module` and
    `packages` (``gs://…``), Google installs these into the image at the start: a pythonPackageSpec.
    """

    image: str | None = None
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    module: str | None = None
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pool:
    """Machines of one type, one task each; a program of None is the job's."""

    machine: Machine
    count: int = 1
    program: Program | None = None


@dataclass(frozen=True, slots=True)
class MachineChoice:
    """Machines in place of a cluster's: for pools with the chief's machine, or for named pools."""

    machine: Machine | None = None
    pools: Mapping[str, Machine] = field(default_factory=dict)  # by `PoolRole.field`


@dataclass(frozen=True, slots=True)
class Cluster:
    """The worker pools of a job; the attributes are the `PoolRole.field` of `POOL_ROLES`."""

    chief: Pool
    workers: Pool | None = None
    parameter_servers: Pool | None = None
    evaluators: Pool | None = None

    @property
    def pools(self) -> tuple[Pool | None, ...]:
        """The pools in the order of `POOL_ROLES`."""
        return tuple(getattr(self, role.field) for role in POOL_ROLES)

    def tasks(self) -> tuple[Task, ...]:
        """Return all tasks: the chief, workers, parameter servers, evaluators."""
        counts = zip(TASK_TYPES, self._counts(), strict=True)
        return tuple(Task(kind, index) for kind, count in counts for index in range(count))

    @property
    def has_gpus(self) -> bool:
        """Whether the machines of a pool have GPUs."""
        return any(pool.machine.gpu_count for pool in self.pools if pool)

    @property
    def task_count(self) -> int:
        """The number of all tasks."""
        return sum(self._counts())

    def with_training_tasks(self, count: int) -> Cluster:
        """Return this cluster with `count` training tasks in total, including the chief."""
        if count < 1:
            raise UsageError(f"expected 1 training task or more, got {count}")
        machine = (self.workers or self.chief).machine
        return replace(self, workers=Pool(machine, count - 1) if count > 1 else None)

    def map_pools(self, change: Callable[[Pool], Pool]) -> Cluster:
        """Return this cluster with a function applied to each pool."""
        others = (pool and change(pool) for pool in self.pools[1:])
        return Cluster(change(self.chief), *others)

    def with_machines(self, choice: MachineChoice) -> Cluster:
        """Return this cluster on other machines."""
        own = self.chief.machine

        def change(role: PoolRole) -> Pool | None:
            pool: Pool | None = getattr(self, role.field)
            if pool is None:
                return None
            machine = choice.pools.get(role.field)
            if machine is None and choice.machine is not None and pool.machine == own:
                machine = choice.machine
            return replace(pool, machine=machine) if machine else pool

        chief, *others = map(change, POOL_ROLES)
        return Cluster(chief or self.chief, *others)

    def describe(self) -> str:
        """Return the tasks in words: ``3 tasks: chief + 2 workers``."""
        return f"{plural(self.task_count, 'task')}: {describe_tasks(self._counts())}"

    def _counts(self) -> list[int]:
        return [pool.count if pool else 0 for pool in self.pools]


def describe_tasks(counts: Iterable[int]) -> str:
    """Return numbers of tasks, by type, in words: ``chief + 2 workers``."""
    return " + ".join(
        "chief" if role.task_type == "chief" else plural(count, role.noun)
        for role, count in zip(POOL_ROLES, counts, strict=True)
        if count
    )


@dataclass(frozen=True, slots=True)
class Image:
    """How the container image is built, and the repository (HOST/PATH) that it is pushed to.

    `include` are copied besides the module's package, and `allow_secrets` are files that only look
    like secrets. The user's own `dockerfile` replaces `base`, `requirements` and `include`; it is
    built up to the stage `target`, the last one by default, with the values `build_args` of its
    ARGs. With the `uri` of an existing image, nothing is built. The `builder` is Docker, or pip
    without Docker (auto), or Google's Cloud Build.
    """

    repository: str | None = None
    base: str | None = None
    requirements: str | None = None
    include: tuple[str, ...] = ()
    allow_secrets: tuple[str, ...] = ()
    dockerfile: str | None = None
    target: str | None = None
    build_args: Mapping[str, str] = field(default_factory=dict)
    uri: str | None = None
    builder: Builder = "auto"


@dataclass(frozen=True, slots=True)
class Scheduling:
    """How Google starts and ends the job; times in seconds, None for Google's default.

    If there are no machines, `submit` tries those of `machines` and `regions` in their order;
    `on_stockout` is which of both it tries first, None for the machines if there are any. With
    `max_cost`, in the currency of the prices, no job that may cost more is submitted.
    """

    strategy: Strategy = "STANDARD"
    timeout: int | None = None
    max_wait: int | None = None
    regions: tuple[str, ...] = ()
    machines: tuple[MachineChoice, ...] = ()
    on_stockout: OnStockout | None = None
    max_cost: float | None = None

    @property
    def may_move(self) -> bool:
        """Whether the job may be moved to other machines or another region."""
        return bool(self.regions or self.machines) and self.on_stockout != "fail"


@dataclass(frozen=True, slots=True)
class Slurm:
    """How a job runs on a Slurm cluster; None is the cluster's default.

    `folder` is that of all jobs, and `python` the interpreter (None: this Python), both on a file
    system of all nodes. `time` is the limit in seconds, `options` are more of sbatch's, and
    `container` is what runs `Image.uri`.
    """

    folder: str | None = None
    python: str | None = None
    partition: str | None = None
    account: str | None = None
    time: int | None = None
    options: tuple[str, ...] = ()
    container: Literal["pyxis", "apptainer"] | None = None


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """How a job runs as a JobSet; None is the cluster's default.

    `queue` is Kueue's, `restarts` are of all tasks, and with `mount_bucket` the job's bucket is
    mounted at /gcs/BUCKET, as on Vertex AI.
    """

    namespace: str | None = None
    queue: str | None = None
    service_account: str | None = None  # Kubernetes' own
    restarts: int = 3
    mount_bucket: bool = False


@dataclass(frozen=True, slots=True)
class StopIf:
    """When the trainer saves and ends a job: GPU use below a share for some seconds."""

    gpu_below: float
    seconds: int

    @classmethod
    def of_env(cls, env: Mapping[str, str]) -> StopIf | None:
        """Return that of a task's variables, None without one."""
        value = json.loads(env.get(STOP_IF, "null"))
        return value and cls(value["gpu_below"], value["for"])

    @property
    def variable(self) -> dict[str, str]:
        """The variable of the tasks that the trainer reads."""
        return {STOP_IF: json.dumps({"gpu_below": self.gpu_below, "for": self.seconds})}


@dataclass(frozen=True, slots=True)
class ReductionServer:
    """Google's all-reduce for GPU workers; None replicas for as many as the cluster needs."""

    replicas: int | None = None


@dataclass(frozen=True, slots=True)
class RangeParameter:
    """A tuned parameter between two numbers."""

    minimum: float
    maximum: float
    is_integer: bool = False
    scale: Scale = "linear"


@dataclass(frozen=True, slots=True)
class ChoiceParameter:
    """A tuned parameter with a list of values; numeric ones are ordered for the search."""

    values: tuple[str, ...]
    is_numeric: bool = False
    scale: Scale = "linear"


@dataclass(frozen=True, slots=True)
class Tuning:
    """A search for the best values of some of the program's options."""

    metric: str
    goal: Literal["maximize", "minimize"]
    parameters: Mapping[str, RangeParameter | ChoiceParameter]
    trials: int
    parallel_trials: int = 1
    algorithm: Literal["bayesian", "grid", "random"] = "bayesian"


@dataclass(frozen=True, slots=True)
class Job:
    """What to run and where.

    The program, ``python -m MODULE ARGS``, or the `script` or `script_module` with args under the
    trainer package's `fit`, writes to BUCKET/NAME/JOB_ID. `vertex` is any other field of Google's
    CustomJob (HyperparameterTuningJob for a tuned job), in Google's JSON names; the fields of this
    class override it.
    """

    name: str
    cluster: Cluster
    module: str = DEFAULT_MODULE
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
    experiment: str | None = None  # its name, or its resource name
    experiment_run: str | None = None
    reservation: str | None = None  # any, NAME, ZONE/NAME or its resource name
    persistent_resource: str | None = None  # the id of the machines that it runs on
    web_access: bool = False  # whether Google opens shells in the tasks
    reduction_server: ReductionServer | None = None
    tuning: Tuning | None = None
    vertex: Mapping[str, Any] = field(default_factory=dict)
    script: str | None = None  # in place of `module`; relative to the project
    script_module: str | None = None  # likewise; run as ``python -m``
    trainer_options: tuple[str, ...] = ()  # of the trainer package, for a script
    engine: EngineName = "vertex"
    slurm: Slurm = field(default_factory=Slurm)
    kubernetes: Kubernetes = field(default_factory=Kubernetes)
    stop_if: StopIf | None = None

    @property
    def task_env(self) -> dict[str, str]:
        """The variables of all tasks: `env`, and what the trainer reads of this job."""
        return {**self.env, **(self.stop_if.variable if self.stop_if else {})}

    @property
    def is_on_slurm(self) -> bool:
        """Whether its engine is Slurm."""
        return self.engine == "slurm"

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        """Its cluster, and then that on each of the other machines that may be tried."""
        clusters = [self.cluster]
        if self.scheduling.may_move and not self.is_on_slurm:
            clusters += map(self.cluster.with_machines, self.scheduling.machines)
        return tuple(each for n, each in enumerate(clusters) if each not in clusters[:n])

    @property
    def has_gpus(self) -> bool:
        """Whether machines that it may run on have GPUs, so that its image needs CUDA."""
        return any(cluster.has_gpus for cluster in self.clusters)

    @property
    def main(self) -> tuple[str, ...]:
        """What follows ``python -m``, before the args."""
        return main_words(self.module, self.script, self.script_module, self.trainer_options)

    @property
    def is_script(self) -> bool:
        """Whether the program calls Keras's fit(), under the trainer package's `fit`."""
        return bool(self.script or self.script_module)


def main_words(
    module: str = DEFAULT_MODULE,
    script: str | None = None,
    script_module: str | None = None,
    trainer_options: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return what follows ``python -m``, before the args, by the keys of the job file."""
    if script:
        return (FIT_MODULE, *trainer_options, script)
    if script_module:
        return (FIT_MODULE, *trainer_options, "-m", script_module)
    return (module,)
