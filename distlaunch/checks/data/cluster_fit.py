"""What the trainer refuses, or warns of, because data, batch and cluster do not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.checks.problem import Problem, error, warning
from distlaunch.text import join_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from distlaunch.checks.data.sharding import BatchOptions, ShardPlan
    from distlaunch.checks.request_view import JobRequest
    from distlaunch.job.machine_catalogue import Catalogue

_ARGS = "args"
_GPU = "NVIDIA"
_MAX_SHARDS = 10_000  # that --shards takes
_MAX_LISTED = 12


@dataclass(frozen=True, slots=True)
class TrainingMachines:
    """How many machines train, including the chief's, and the GPUs on each."""

    count: int
    gpus: int

    @property
    def replicas(self) -> int:
        """What trains in step: a GPU each, or a machine without one."""
        return self.count * max(1, self.gpus)

    @property
    def key(self) -> str:
        """The key of the job file that sets the number of replicas."""
        return "cluster.workers.count" if self.count > 1 else "cluster.chief.accelerator.count"

    def worker_counts(self, replicas: Iterable[int]) -> list[int]:
        """Return the numbers of workers, besides the chief, that make such numbers of replicas."""
        gpus = max(1, self.gpus)
        return [number // gpus - 1 for number in replicas if number and number % gpus == 0]


def training_machines(request: JobRequest) -> TrainingMachines | None:
    """Return the machines that train; None where the bundled trainer does not train on them.

    It needs the same number of GPUs on each machine, and does not train on TPUs.
    """
    pools = [pool for pool in request.pools if pool.is_training]
    kinds = {(pool.accelerator, pool.accelerator_count) for pool in pools}
    if len(kinds) != 1 or any(pool.image or pool.module or pool.topology for pool in pools):
        return None
    accelerator, gpus = kinds.pop()
    if accelerator and not accelerator.startswith(_GPU):
        return None
    return TrainingMachines(sum(pool.replicas for pool in pools), gpus if accelerator else 0)


def takes_accelerators(request: JobRequest, catalogue: Catalogue) -> bool:
    """Return whether each machine that the catalogue knows takes its number of accelerators."""
    for pool in request.pools:
        kind = catalogue.machines.get(pool.machine)
        counts = kind.accelerators.get(pool.accelerator or "") if kind else None
        if counts and pool.accelerator_count not in counts:
            return False
    return True


def plan_problems(
    plan: ShardPlan, options: BatchOptions, machines: TrainingMachines
) -> Iterator[Problem]:
    """Yield problems of replicas, shards and batch, whatever the data are."""
    if options.batch and options.global_batch:
        yield error(
            "batch-clash",
            _ARGS,
            "--batch-size and --global-batch-size are both set, and the trainer takes one",
            f"leave one out; --batch-size={options.batch} on {plan.replicas} replicas is "
            f"--global-batch-size={options.batch * plan.replicas}",
        )
    if plan.shards and plan.shards % plan.replicas:
        yield _not_divided(plan, plan.shards, options, machines)
    if plan.shards and plan.global_batch and plan.global_batch < plan.replicas:
        batch, replicas = plan.global_batch, plan.replicas
        yield error(
            "batch-idle",
            _ARGS,
            f"a global batch of {batch} leaves {replicas - batch} of {replicas} replicas idle",
            f"set --global-batch-size={replicas} or more",
        )


def _not_divided(
    plan: ShardPlan, shards: int, options: BatchOptions, machines: TrainingMachines
) -> Problem:
    allowed, replicas = plan.allowed_replicas, plan.replicas
    workers = machines.worker_counts(allowed)
    size = f"cluster.workers.count: {_listed(workers)}" if workers else "another number of GPUs"
    enough = replicas * 4 if replicas * 4 <= _MAX_SHARDS else replicas
    more = f", or --shards={enough} in args" if enough <= _MAX_SHARDS else ""
    return error(
        "shards-not-divided",
        _ARGS if options.shards else machines.key,
        f"{replicas} replicas do not divide the {shards} logical shards of the data; "
        f"{_listed(allowed)} do",
        f"set {size}{more}",
    )


def dataset_batch_problems(
    plan: ShardPlan, options: BatchOptions, source: str
) -> Iterator[Problem]:
    """Yield problems of the batch of a ``tf.data.Dataset``."""
    batch, replicas = plan.global_batch, plan.replicas
    if batch is None:
        return
    requested = options.global_batch or (options.batch and options.batch * replicas)
    if requested and requested != batch:
        yield error(
            "batch-clash",
            source,
            f"batch({batch}) of the data set is the global batch, and args set {requested}",
            f"write batch({requested}), or leave the batch out of args",
        )
    elif batch % replicas:
        below = batch // replicas * replicas
        fitting = " or ".join(f"batch({size})" for size in (below, below + replicas) if size)
        yield error(
            "batch-clash",
            source,
            f"batch({batch}) of the data set is the global batch, which {replicas} replicas "
            "cannot share equally",
            f"write {fitting}",
        )


def example_problems(
    name: str, examples: int, machines: TrainingMachines, source: str
) -> Iterator[Problem]:
    """Yield an error where there are fewer examples than replicas."""
    replicas = machines.replicas
    if examples >= replicas:
        return
    if not examples:
        yield error(
            "data-too-few",
            source,
            f"the files of the {name} data contain no record",
            f"write at least as many into them as there are replicas, {replicas} with this cluster",
        )
        return
    workers = max(machines.worker_counts(range(1, examples + 1)), default=None)
    size = f"cluster.workers.count: {workers}" if workers is not None else "fewer GPUs a machine"
    yield error(
        "data-too-few",
        source,
        f"{replicas} replicas are more than the {examples} examples of the {name} data",
        f"use {examples} replicas or fewer ({size}), or more data",
    )


def step_problems(plan: ShardPlan, options: BatchOptions) -> Iterator[Problem]:
    """Yield a warning where --steps-per-epoch covers a part of the data, or repeats it."""
    requested, steps = options.steps, plan.steps
    examples, batch = plan.examples, plan.global_batch
    if not requested or not steps or not examples or not batch or requested == steps:
        return
    if requested < steps:
        seen = requested * batch
        code = "steps-partial"
        effect = f"covers {seen:,} of {examples:,} examples ({100 * seen // examples} %)"
    else:
        times = (plan.rows_seen(requested) or 0) * 10 // examples / 10
        code = "steps-repeat"
        effect = f"sees each of {examples:,} examples {times} times"
    yield warning(
        code,
        _ARGS,
        f"--steps-per-epoch={requested} {effect} in an epoch",
        f"leave it out, or set --steps-per-epoch={steps}, which sees each once",
    )


def _listed(sizes: Iterable[int]) -> str:
    texts = list(map(str, sizes))
    if len(texts) > _MAX_LISTED:
        texts = [*texts[: _MAX_LISTED - 1], "…", texts[-1]]
    return join_names(texts, "or")
