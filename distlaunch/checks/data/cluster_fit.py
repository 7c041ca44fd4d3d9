"""What the trainer refuses, or warns of, because data and cluster don't fit each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.checks.problem import Problem, error, warning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from distlaunch.checks.data.sharding import Dealing, Told
    from distlaunch.checks.request_view import JobRequest
    from distlaunch.job.machine_catalogue import Catalogue

_ARGS = "args"
_GPU = "NVIDIA"
_MOST_SHARDS = 10_000  # that --shards takes
_NAMED = 12  # sizes that fit in one line


@dataclass(frozen=True, slots=True)
class Machines:
    """The machines that train.

    Parameters
    ----------
    count
        How many, the chief's among them.
    gpus
        On each; 0 without.
    """

    count: int
    gpus: int

    @property
    def replicas(self) -> int:
        """What trains in step: a GPU each, or a machine without one."""
        return self.count * max(1, self.gpus)

    @property
    def where(self) -> str:
        """The key of the job file that says how many replicas there are."""
        return "cluster.workers.count" if self.count > 1 else "cluster.chief.accelerator.count"

    def workers(self, replicas: Iterable[int]) -> list[int]:
        """Return the numbers of workers, beside the chief, that make such numbers of replicas."""
        each = max(1, self.gpus)
        return [number // each - 1 for number in replicas if number and number % each == 0]


def machines(asked: JobRequest) -> Machines | None:
    """Return the machines that train; None where they are not known, or the trainer's are others.

    The trainer takes as many GPUs on each machine; TPUs it doesn't take at all.
    """
    pools = [pool for pool in asked.pools if pool.is_training]
    kinds = {(pool.accelerator, pool.accelerator_count) for pool in pools}
    if len(kinds) != 1 or any(pool.image or pool.module or pool.topology for pool in pools):
        return None
    accelerator, gpus = kinds.pop()
    if accelerator and not accelerator.startswith(_GPU):
        return None
    return Machines(sum(pool.replicas for pool in pools), gpus if accelerator else 0)


def can_be(asked: JobRequest, catalogue: Catalogue) -> bool:
    """Return whether no machine is known not to take as many GPUs as it is to have."""
    for pool in asked.pools:
        kind = catalogue.machines.get(pool.machine)
        numbers = kind.accelerators.get(pool.accelerator or "") if kind else None
        if numbers and pool.accelerator_count not in numbers:
            return False
    return True


def of_cluster(dealing: Dealing, told: Told, machines: Machines) -> Iterator[Problem]:
    """Yield what is wrong with the number of replicas and the batch, whatever the data are."""
    if told.batch and told.global_batch:
        yield error(
            "batch-clash",
            _ARGS,
            "--batch-size and --global-batch-size are both there, and the trainer takes one",
            f"leave one out; --batch-size={told.batch} on {dealing.replicas} replicas is "
            f"--global-batch-size={told.batch * dealing.replicas}",
        )
    if dealing.shards and dealing.shards % dealing.replicas:
        yield _not_divided(dealing, dealing.shards, told, machines)
    if dealing.shards and dealing.global_batch and dealing.global_batch < dealing.replicas:
        batch, replicas = dealing.global_batch, dealing.replicas
        yield error(
            "batch-idle",
            _ARGS,
            f"a global batch of {batch} leaves {replicas - batch} of {replicas} replicas idle",
            f"say --global-batch-size={replicas} or more",
        )


def of_own_batch(dealing: Dealing, told: Told, where: str) -> Iterator[Problem]:
    """Yield what is wrong with the batch of a data set of the user's own."""
    batch, replicas = dealing.global_batch, dealing.replicas
    if batch is None:
        return
    asked = told.global_batch or (told.batch and told.batch * replicas)
    if asked and asked != batch:
        yield error(
            "batch-clash",
            where,
            f"batch({batch}) of the data set is the global batch, and {asked} is asked for",
            f"write batch({asked}), or leave the batch out of args",
        )
    elif batch % replicas:
        below = batch // replicas * replicas
        fitting = " or ".join(f"batch({size})" for size in (below, below + replicas) if size)
        yield error(
            "batch-clash",
            where,
            f"batch({batch}) of the data set is the global batch, and {replicas} replicas cannot "
            "have equal parts of it",
            f"write {fitting}",
        )


def of_examples(dealing: Dealing, where: str, machines: Machines, data: str) -> Iterator[Problem]:
    """Yield what is wrong where there are fewer examples than replicas.

    Parameters
    ----------
    data
        Which data they are.
    """
    examples, replicas = dealing.examples, dealing.replicas
    if examples is None or examples >= replicas:
        return
    if not examples:
        yield error(
            "data-too-few",
            where,
            f"the files of the {data} data hold no record",
            f"write at least as many into them as there are replicas, {replicas} with this cluster",
        )
        return
    workers = max(machines.workers(range(1, examples + 1)), default=None)
    size = f"cluster.workers.count: {workers}" if workers is not None else "fewer GPUs a machine"
    yield error(
        "data-too-few",
        where,
        f"{replicas} replicas are more than the {examples} examples of the {data} data",
        f"take {examples} replicas or fewer ({size}), or more data",
    )


def of_steps(dealing: Dealing, told: Told, *, is_all: bool) -> Iterator[Problem]:
    """Yield what is to be known of the user's own number of steps.

    Parameters
    ----------
    is_all
        Whether there are no more examples than those of the dealing.
    """
    asked, steps = told.steps, dealing.steps
    examples, batch = dealing.examples, dealing.global_batch
    if not asked or not steps or not examples or not batch or asked == steps:
        return
    remedy = f"leave it out, or say --steps-per-epoch={steps}, which sees each once"
    if asked < steps:
        seen = asked * batch
        left = f"{100 * seen // examples} %" if is_all else "a part"
        more = "" if is_all else "more than "
        yield warning(
            "steps-partial",
            _ARGS,
            f"--steps-per-epoch={asked} covers {seen:,} of {more}{examples:,} examples ({left}) "
            "in an epoch",
            remedy if is_all else "leave it out to see each once",
        )
    elif is_all:
        times = (dealing.seen(asked) or 0) * 10 // examples / 10
        yield warning(
            "steps-repeat",
            _ARGS,
            f"--steps-per-epoch={asked} sees each of {examples:,} examples {times} times in an "
            "epoch",
            remedy,
        )


def _not_divided(dealing: Dealing, shards: int, told: Told, machines: Machines) -> Problem:
    fitting, replicas = dealing.fitting, dealing.replicas
    workers = machines.workers(fitting)
    size = f"cluster.workers.count: {_listed(workers)}" if workers else "another number of GPUs"
    enough = replicas * 4 if replicas * 4 <= _MOST_SHARDS else replicas
    more = f", or say --shards={enough} in args" if enough <= _MOST_SHARDS else ""
    return error(
        "shards-not-divided",
        _ARGS if told.shards else machines.where,
        f"{replicas} replicas do not divide the {shards} logical shards of the data; "
        f"{_listed(fitting)} do",
        f"take {size}{more}",
    )


def _listed(sizes: Iterable[int]) -> str:
    texts = list(map(str, sizes))
    if len(texts) > _NAMED:
        texts = [*texts[: _NAMED - 1], "…", texts[-1]]
    return " or ".join(filter(None, [", ".join(texts[:-1]), *texts[-1:]]))
