"""How the trainer divides examples among replicas, and what it refuses or warns of.

The launcher does not import the trainer; tests/golden/plan.json keeps both in agreement.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from distlaunch.checks.problem import error, warning
from distlaunch.text import join_names, plural

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator

    from distlaunch.checks.problem import Problem
    from distlaunch.job.vertex.view import JobRequest

BATCH = 32  # default rows of a step on a replica
SHARDS = 240  # default number of logical shards


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

    It needs the same number of GPUs on each machine. The replicas of a TPU are not counted.
    """
    pools = [pool for pool in request.pools if pool.is_training]
    if request.has_parameter_servers:  # a step is of one worker
        return None if any(pool.image or pool.module for pool in pools) else TrainingMachines(1, 0)
    kinds = {(pool.accelerator, pool.accelerator_count) for pool in pools}
    if len(kinds) != 1 or any(pool.image or pool.module or pool.topology for pool in pools):
        return None
    accelerator, gpus = kinds.pop()
    if accelerator and not accelerator.startswith("NVIDIA"):
        return None
    return TrainingMachines(sum(pool.replicas for pool in pools), gpus if accelerator else 0)


@dataclass(frozen=True, slots=True)
class DataPlan:
    """The examples of an epoch, and how the replicas share them; None is unknown."""

    replicas: int
    global_batch: int | None  # rows of a step over all replicas
    shards: int | None = SHARDS  # None for a tf.data.Dataset, which has none
    examples: int | None = None
    requested_steps: int | None = None  # per epoch, if the job sets them
    files: int | None = None  # that the container has
    unknown: str = ""  # why files and examples are unknown

    @property
    def steps(self) -> int | None:
        """Steps in which each example is seen once."""
        if not self.global_batch or self.examples is None:
            return None
        return ceil(self.examples / self.global_batch)

    @property
    def rows(self) -> tuple[int, int] | None:
        """The fewest and the most rows of a replica in a step, except in a smaller last one."""
        if not self.global_batch:
            return None
        full = min(self.global_batch, self.examples or self.global_batch)
        return full // self.replicas, ceil(full / self.replicas)

    @property
    def last_rows(self) -> int | None:
        """Rows of an epoch's last step over all replicas, None with steps that the job sets."""
        if self.requested_steps or not self.global_batch or not self.examples:
            return None
        return (self.examples - 1) % self.global_batch + 1

    @property
    def allowed_replicas(self) -> list[int]:
        """The numbers of replicas that divide the shards."""
        shards = self.shards or 0
        return [size for size in range(1, shards + 1) if shards % size == 0]

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        names = ("files", "examples", "replicas", "global_batch", "rows", "last_rows", "shards")
        steps = self.requested_steps or self.steps
        values = {name: getattr(self, name) for name in (*names, "unknown")}
        return values | {"steps_per_epoch": steps}

    def lines(self) -> list[str]:
        """Return the lines of the plan that `check` prints."""
        if self.examples is None:
            text = f"unknown (run 'distlaunch check --run' or 'distlaunch local'): {self.unknown}"
        else:
            files = f" in {plural(self.files, 'file')}" if self.files else ""
            text = f"{plural(self.examples, 'example')}{files}"
        return [text, self._steps_line()] if self.rows else [text]

    def _steps_line(self) -> str:
        text = f"{plural(self.global_batch or 0, 'row')} a step"
        if self.replicas > 1:
            share = " or ".join(f"{rows:,}" for rows in sorted(set(self.rows or ())))
            text += f", {share} on each of {self.replicas:,} replicas"
        steps = self.requested_steps or self.steps
        if steps:
            text += f"; {plural(steps, 'step')} an epoch"
        if steps and steps > 1 and self.last_rows not in (None, self.global_batch):
            text += f", the last of {self.last_rows:,}"
        return text


def problems(
    plan: DataPlan, options: Namespace, machines: TrainingMachines, source: str
) -> Iterator[Problem]:
    """Yield problems of replicas, shards, batch and steps.

    `options` are the trainer's, and `source` is the path of ``data.py`` in the project.
    """
    batch, replicas = plan.global_batch, plan.replicas
    if options.batch_size and options.global_batch_size:
        what = "--batch-size and --global-batch-size are both set, and the trainer takes one"
        total = options.batch_size * replicas
        remedy = f"leave one out; a batch of {options.batch_size} is --global-batch-size={total}"
        yield error("batch-clash", "args", what, remedy)
    if plan.shards and plan.shards % replicas:
        yield _not_divided(plan, options, machines)
    if plan.shards and batch and batch < replicas:
        what = f"a global batch of {batch} leaves {replicas - batch} of {replicas} replicas idle"
        remedy = f"set --global-batch-size={replicas} or more"
        yield error("batch-idle", "args", what, remedy)
    is_chosen = options.global_batch_size or options.batch_size
    if is_chosen and batch and plan.shards and batch > (plan.examples or batch):
        what = f"a global batch of {batch:,} is larger than the {plan.examples:,} examples"
        remedy = "use a smaller one: each epoch is one step"
        yield warning("batch-too-large", "args", what, remedy)
    if batch and not plan.shards:
        yield from _dataset_batch_problems(batch, replicas, options, source)
    if plan.requested_steps and plan.examples and batch:
        yield from _step_problems(plan, plan.requested_steps, plan.examples, batch)


def _not_divided(plan: DataPlan, options: Namespace, machines: TrainingMachines) -> Problem:
    replicas = plan.replicas
    workers = machines.worker_counts(plan.allowed_replicas)
    size = "another number of GPUs"
    if workers:
        size = f"cluster.workers.count: {join_names(workers, 'or')}"
    allowed = join_names(plan.allowed_replicas, "or")
    what = f"{replicas} replicas do not divide the {plan.shards} logical shards; {allowed} do"
    remedy = f"set {size}, or --shards={replicas * 4} in args"
    where = "args" if options.shards else machines.key
    return error("shards-not-divided", where, what, remedy)


def _dataset_batch_problems(
    batch: int, replicas: int, options: Namespace, source: str
) -> Iterator[Problem]:
    """Yield problems of the batch of a ``tf.data.Dataset``."""
    message = f"batch({batch}) of the data set is the global batch,"
    requested = options.global_batch_size or (options.batch_size or 0) * replicas
    if requested and requested != batch:
        remedy = f"write batch({requested}), or leave the batch out of args"
        yield error("batch-clash", source, f"{message} and args set {requested}", remedy)
    elif batch < replicas:
        idle = (
            f"batch({batch}) of the data set leaves {replicas - batch} of {replicas} replicas idle"
        )
        yield error("batch-idle", source, idle, f"write batch({replicas}) or more")


def _step_problems(plan: DataPlan, requested: int, examples: int, batch: int) -> Iterator[Problem]:
    """Yield a warning where --steps-per-epoch covers a part of the data, or repeats it."""
    steps = plan.steps or 0
    if requested == steps:
        return
    if requested < steps:
        code, seen = "steps-partial", requested * batch
        effect = f"covers {seen:,} of {examples:,} examples ({100 * seen // examples} %)"
    else:
        epochs, rest = divmod(requested, steps)
        seen = epochs * examples + min(rest * batch, examples)
        code = "steps-repeat"
        effect = f"sees each of {examples:,} examples {seen * 10 // examples / 10} times"
    what = f"--steps-per-epoch={requested} {effect} in an epoch"
    remedy = f"leave it out, or set --steps-per-epoch={steps}, which sees each once"
    yield warning(code, "args", what, remedy)


def example_problems(
    name: str, examples: int, machines: TrainingMachines, source: str
) -> Iterator[Problem]:
    """Yield an error where there are fewer examples than replicas; `name` is the dataset's."""
    replicas = machines.replicas
    if examples >= replicas:
        return
    if not examples:
        what = f"the files of the {name} data contain no record"
        remedy = f"write {replicas} or more into them, one for each replica"
    else:
        workers = max(machines.worker_counts(range(1, examples + 1)), default=None)
        size = "fewer GPUs a machine" if workers is None else f"cluster.workers.count: {workers}"
        what = f"{replicas} replicas are more than the {examples} examples of the {name} data"
        remedy = f"use {examples} replicas or fewer ({size}), or more data"
    yield error("data-too-few", source, what, remedy)
