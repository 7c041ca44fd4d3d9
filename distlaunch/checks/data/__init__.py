"""The data of the bundled trainer against the cluster.

What the data are comes from the last local run (`record`), whether the container has the files from
their paths (`location`), and what the cluster makes of them from the trainer's own arithmetic
(`sharding`).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from distlaunch.checks.data import record, sharding
from distlaunch.checks.data.location import DataLocation
from distlaunch.checks.data.sharding import DataPlan

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Collection

    from distlaunch.checks.data.record import DatasetRecord
    from distlaunch.checks.data.sharding import TrainingMachines
    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.image_runtime import ImageRuntime
    from distlaunch.checks.request_view import JobRequest
    from distlaunch.checks.trainer import Trainer
    from distlaunch.submit.plan import LaunchRequest

__all__ = ["DataPlan", "check_data"]

# The options of the arithmetic; a problem of one begins with its name.
_OPTIONS = ("--batch-size", "--global-batch-size", "--shards", "--steps-per-epoch")
# The data may be other ones in the cloud where data.py looks at its surroundings.
_MAY_DIFFER = re.compile(r"\b(environ|getenv|argv|exists|is_dir|is_file)\b")
_TRAINERS_INPUT = re.compile(r"\bdistributed\.input\b")  # what Records and Arrays are imported from


def check_data(
    order: LaunchRequest,
    request: JobRequest,
    trainer: Trainer | None,
    included: Collection[str],
    runtime: ImageRuntime,
) -> tuple[DataPlan | None, list[Problem]]:
    """Return what is known of a job's data, and their problems.

    `included` are the project's files in the image, as POSIX paths relative to its folder.
    """
    if trainer is None or not trainer.data.is_file():
        return None, []
    text = trainer.data.read_text(encoding="utf-8", errors="replace")
    source = trainer.data.relative_to(order.folder).as_posix()
    location = DataLocation(order, source, text, frozenset(included), runtime)
    datasets: dict[str, DatasetRecord] = {}
    unknown = ""
    try:
        datasets = record.load(order.folder, trainer.data)
    except record.DataUnknown as reason:
        unknown = str(reason)
    problems = [*filter(None, map(location.problem, datasets.values()))]
    plan, machines = None, sharding.training_machines(request)
    if machines and _is_predictable(order, trainer):
        training = datasets.get("training")
        plan = _data_plan(training, machines, trainer.options, location, unknown)
        problems += sharding.problems(plan, trainer.options, machines, source)
        for name, dataset in datasets.items():
            examples = _examples(dataset, location)
            problems += sharding.example_problems(name, examples, machines, source)
    return plan, _with_severity(problems, location)


def _is_predictable(order: LaunchRequest, trainer: Trainer) -> bool:
    """Whether each option of the arithmetic has one value, for all trials of a tuned job."""
    tuned = {f"--{name}" for name in order.job.tuning.parameters} if order.job.tuning else set()
    is_refused = any(problem.what.startswith(_OPTIONS) for problem in trainer.problems)
    return tuned.isdisjoint(_OPTIONS) and not is_refused


def _with_severity(problems: list[Problem], location: DataLocation) -> list[Problem]:
    """Turn errors about the data into warnings where the data may be other ones in the cloud."""
    if not _MAY_DIFFER.search(location.text):
        return problems
    return [
        replace(problem, severity="warning") if problem.where == location.source else problem
        for problem in problems
    ]


def _data_plan(
    training: DatasetRecord | None,
    machines: TrainingMachines,
    options: Namespace,
    location: DataLocation,
    unknown: str,
) -> DataPlan:
    replicas, steps = machines.replicas, options.steps_per_epoch
    batch = options.global_batch_size or (options.batch_size or sharding.BATCH) * replicas
    shards = options.shards or sharding.SHARDS
    if training is None:
        is_sharded = _TRAINERS_INPUT.search(location.text) is not None
        batch, shards = (batch, shards) if is_sharded else (None, None)
        return DataPlan(replicas, batch, shards, requested_steps=steps, unknown=unknown)
    if training.kind == "dataset":
        batch, shards = training.batch, None
    examples, files = _examples(training, location), len(location.files(training))
    return DataPlan(replicas, batch, shards, examples, steps, files or None)


def _examples(dataset: DatasetRecord, location: DataLocation) -> int:
    files = location.files(dataset)
    if files == dataset.files:
        return dataset.examples
    return sum(file.examples for file in files)
