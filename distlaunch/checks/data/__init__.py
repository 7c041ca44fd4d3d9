"""The data of the bundled trainer against the cluster.

What the data are comes from the last local run (`record`), whether the container has the files from
their paths (`location`), and what the cluster makes of them from the trainer's own arithmetic
(`sharding`, `cluster_fit`).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from distlaunch.checks.data import cluster_fit, record, sharding
from distlaunch.checks.data.location import DataLocation
from distlaunch.checks.data.sharding import DataFacts, ShardPlan

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from distlaunch.checks.data.cluster_fit import TrainingMachines
    from distlaunch.checks.data.record import DataRecord, DatasetRecord
    from distlaunch.checks.data.sharding import BatchOptions
    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.image_runtime import ImageRuntime
    from distlaunch.checks.request_view import JobRequest
    from distlaunch.checks.trainer import Trainer
    from distlaunch.job.machine_catalogue import Catalogue
    from distlaunch.job.model import Job
    from distlaunch.submit.plan import LaunchRequest

__all__ = ["DataFacts", "check_data"]

_TUNABLE = ("batch-size", "global-batch-size", "shards", "steps-per-epoch")
# The data may be other ones in the cloud where data.py looks at its surroundings.
_MAY_DIFFER = re.compile(r"\b(environ|getenv|argv|exists|is_dir|is_file)\b")
_TRAINERS_INPUT = re.compile(r"\bdistributed\.input\b")  # what Records and Arrays are imported from


def check_data(
    order: LaunchRequest,
    request: JobRequest,
    trainer: Trainer | None,
    included: Collection[str],
    runtime: ImageRuntime,
    *,
    catalogue: Catalogue,
) -> tuple[DataFacts | None, list[Problem]]:
    """Return what is known of a job's data, and their problems.

    `included` are the project's files in the image, as POSIX paths relative to its folder. The
    number of GPUs is not checked where the catalogue's machine does not take it.
    """
    if trainer is None or not trainer.data.is_file():
        return None, []
    text = trainer.data.read_text(encoding="utf-8", errors="replace")
    source = trainer.data.relative_to(order.folder).as_posix()
    location = DataLocation(order, source, text, frozenset(included), runtime)
    data, unknown = None, ""
    try:
        data = record.load(order.folder, trainer.data)
    except record.DataUnknown as reason:
        unknown = str(reason)
    datasets = [data.training, data.validation] if data else []
    problems = [*filter(None, (location.problem(dataset) for dataset in datasets if dataset))]
    machines = cluster_fit.training_machines(request)
    options = None if _is_tuned(order.job) else sharding.batch_options(trainer.options)
    if machines is None or options is None:
        return None, _with_severity(problems, location)
    plan = _shard_plan(data, machines, options, location)
    if cluster_fit.takes_accelerators(request, catalogue):
        problems += _cluster_problems(data, plan, machines, options, location)
    files = len(location.files(data.training)) or None if data else None
    facts = DataFacts(plan, files, options.steps, unknown)
    return facts, _with_severity(problems, location)


def _is_tuned(job: Job) -> bool:
    """Whether trials differ in what the arithmetic takes."""
    return job.tuning is not None and not job.tuning.parameters.keys().isdisjoint(_TUNABLE)


def _with_severity(problems: list[Problem], location: DataLocation) -> list[Problem]:
    """Turn errors about the data into warnings where the data may be other ones in the cloud."""
    if not _MAY_DIFFER.search(location.text):
        return problems
    return [
        replace(each, severity="warning") if each.where == location.source else each
        for each in problems
    ]


def _shard_plan(
    data: DataRecord | None,
    machines: TrainingMachines,
    options: BatchOptions,
    location: DataLocation,
) -> ShardPlan:
    replicas, shards = machines.replicas, options.shards or sharding.SHARDS
    batch = options.global_batch or (options.batch or sharding.BATCH) * replicas
    if data is None:
        is_sharded = _TRAINERS_INPUT.search(location.text) is not None
        return ShardPlan(replicas, batch, shards) if is_sharded else ShardPlan(replicas, None, None)
    examples = _examples(data.training, location)
    if data.training.kind == "dataset":
        return ShardPlan(replicas, data.training.batch, None, examples)
    return ShardPlan(replicas, batch, shards, examples)


def _examples(dataset: DatasetRecord, location: DataLocation) -> int:
    files = location.files(dataset)
    if files == dataset.files:
        return dataset.examples
    return sum(file.examples for file in files)


def _cluster_problems(
    data: DataRecord | None,
    plan: ShardPlan,
    machines: TrainingMachines,
    options: BatchOptions,
    location: DataLocation,
) -> Iterator[Problem]:
    yield from cluster_fit.plan_problems(plan, options, machines)
    if data is None:
        return
    source = location.source
    if data.training.kind == "dataset":
        yield from cluster_fit.dataset_batch_problems(plan, options, source)
    yield from cluster_fit.step_problems(plan, options)
    for name, dataset in (("training", data.training), ("validation", data.validation)):
        if dataset:
            examples = _examples(dataset, location)
            yield from cluster_fit.example_problems(name, examples, machines, source)
