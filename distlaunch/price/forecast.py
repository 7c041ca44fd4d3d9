"""The clusters that a project could run on: machines, prices and what they would take.

Forecasts are written as a table and as JSON, with the Pareto front of time and money.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from distlaunch.errors import DistlaunchError
from distlaunch.job import machine_catalogue, reduction_server
from distlaunch.job.load import FILE_NAME, load_job_file
from distlaunch.job.model import Cluster, Machine, Pool
from distlaunch.job.vertex.view import JobRequest, PoolRequest
from distlaunch.local.host_resources import this_machine
from distlaunch.price import estimate_cost, load_prices
from distlaunch.price.step_time import LOCAL, Range, Target, forecast_step, pareto_front
from distlaunch.text import Table

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from pathlib import Path

    from distlaunch.job.model import Job
    from distlaunch.price import Cost
    from distlaunch.price.step_time import MeasuredRun

_DEFAULT_REGION = "us-central1"
_START = Range(120, 300, 900)  # seconds: machines, image and TensorFlow
_LOCAL_START = Range(5, 15, 40)
_HOUR = 3600
_HEADS = ("machine", "workers", "rows", "step", "examples/s", "time", "money", "")
_OPTIONAL = tuple(map(_HEADS.index, ("examples/s", "rows")))
_RANGES = tuple(map(_HEADS.index, ("step", "time", "money")))


NOT_INCLUDED = "validation, checkpoints and what is done between epochs"


@dataclass(frozen=True, slots=True)
class Shape:
    """A cluster: what a step, the whole training and its money will be."""

    target: Target
    workers: int
    batch: float  # rows of a task
    epochs: int
    steps: int
    step: Range  # seconds
    hours: Range
    cost: Cost | None  # None on this machine
    sources: dict[str, str]

    @property
    def money(self) -> Range | None:
        """The money for the hours, None if the price is not known."""
        if self.cost is None or self.cost.an_hour is None:
            return None
        an_hour = float(self.cost.an_hour)
        return Range(*(hours * an_hour for hours in self.hours))

    def describe_total(self) -> str:
        """Return time and money in words, such as ``1.2 h (0.9-2.1), 0.6 USD (0.4-1)``."""
        units = (("h", 1), ("min", 60), ("s", 3600))
        unit, scale = next((pair for pair in units if self.hours.mid * pair[1] >= 1), units[-1])
        time = _text(Range(*(scale * hours for hours in self.hours)), unit)
        money, cost = self.money, self.cost
        return f"{time}, {_text(money, cost.currency)}" if money and cost else time

    def as_json(self, *, is_best: bool) -> dict[str, Any]:
        """Return it with the fields of ``forecast --json``."""
        machine, cost = self.target.machine, self.cost
        return {
            "machine": machine.type,
            "accelerator": machine.accelerator,
            "accelerator_count": machine.accelerator_count,
            "workers": self.workers,
            "batch_size": self.batch,
            "epochs": self.epochs,
            "steps": self.steps,
            "step_seconds": _json_range(self.step),
            "examples_per_second": _json_range(
                Range(*(self.workers * self.batch / step for step in reversed(self.step)))
            ),
            "hours": _json_range(self.hours),
            "money": _json_range(self.money) if self.money else None,
            "currency": cost.currency if cost else None,
            "is_estimate": cost.is_estimate if cost else None,
            "is_best": is_best,
            "sources": self.sources,
        }


class Clusters:
    """Forecasts with the job file, the catalogue and the prices of a project.

    Parameters
    ----------
    project
        The folder; it need not have a job file.
    region
        Replaces that of the job file.
    job
        Replaces the job file.
    catalogue, prices
        Replace the project's files.
    """

    def __init__(
        self,
        project: Path,
        region: str | None = None,
        job: Job | None = None,
        *,
        catalogue: Path | None = None,
        prices: Path | None = None,
    ) -> None:
        path = project / FILE_NAME
        self._project, self._prices = project, prices
        self._job = job or (load_job_file(path, []) if path.exists() else None)
        self._region = region or (self._job.region if self._job else None) or _DEFAULT_REGION
        self._catalogue = machine_catalogue.of_project(project, catalogue)

    def target(self, name: str, accelerator: str | None = None, count: int = 0) -> Target:
        """Return a machine of the catalogue, or `LOCAL`; DistlaunchError if it is unknown."""
        if name == LOCAL:
            return Target(Machine(LOCAL), len(this_machine({}).cores))
        kind = self._catalogue.machines.get(name)
        if kind is None:
            hint = machine_catalogue.suggest_machine(name, self._catalogue.machines)
            raise DistlaunchError(f"--machine {name}: unknown machine type{hint}")
        if accelerator and not kind.takes(accelerator, count):
            hint = machine_catalogue.suggest_accelerator(accelerator, kind.accelerators)
            raise DistlaunchError(f"--machine {name}: does not take {count} {accelerator}{hint}")
        if accelerator is None and kind.needs_accelerator:
            accelerator, counts = next(iter(kind.accelerators.items()))
            count = counts[0]
        if kind.has_tpu:
            raise DistlaunchError(f"--machine {name}: steps on TPUs are not measured")
        egress = kind.egress_limit(accelerator, count)
        return Target(Machine(name, accelerator, count), kind.cpus or 1, egress)

    def default(self) -> Target:
        """Return the machine of the job file's chief, this machine where there is none."""
        machine = self._job.cluster.chief.machine if self._job else None
        if machine is None or not machine.type:  # of a job on Slurm
            return self.target(LOCAL)
        return self.target(machine.type, machine.accelerator, machine.accelerator_count)

    def forecast_all(
        self,
        runs: Sequence[MeasuredRun],
        targets: Sequence[Target],
        workers: Sequence[int],
        *,
        batch: float | None = None,
        epochs: int | None = None,
        steps: int | None = None,
        speed: float | None = None,
    ) -> tuple[list[Shape], list[str]]:
        """Return the forecasts that the runs allow, and why they do not allow others.

        `batch` are rows of a task and `epochs` passes over the data, by default those of the first
        run; `steps` of an epoch are by default those that see every example once. `speed` is a
        known one of a single task on the targets, in examples per second.
        """
        batch, epochs = batch or runs[0].batch, epochs or runs[0].epochs
        shapes: list[Shape] = []
        refusals: list[str] = []
        for target, count in product(targets, workers):
            per_epoch = steps or math.ceil(runs[0].examples / (batch * count))
            known = [runs[0].at_speed(speed, target, batch), *runs] if speed else runs
            try:
                shapes.append(self._forecast(known, target, count, batch, (epochs, per_epoch)))
            except DistlaunchError as error:
                refusals.append(str(error))
        return shapes, list(dict.fromkeys(refusals))

    def _forecast(
        self,
        runs: Sequence[MeasuredRun],
        target: Target,
        count: int,
        batch: float,
        length: tuple[int, int],
    ) -> Shape:
        """Return the forecast of a cluster; `length` is the epochs and the steps of each."""
        has_servers = bool(self._job and self._job.reduction_server and target.machine.gpu_count)
        step, sources = forecast_step(runs, target, count, batch, has_servers=has_servers)
        steps = math.prod(length)
        start = _LOCAL_START if target.is_local else _START
        low, mid, high = (f"{seconds / 60:.2g}" for seconds in start)
        sources["start"] = f"assumed: {mid} min ({low}-{high})"
        pairs = zip(step, start, strict=True)
        hours = Range(*((steps * seconds + wait) / _HOUR for seconds, wait in pairs))
        is_free = target.is_local or bool(self._job and self._job.persistent_resource)
        cost = None if is_free else self._cost(target.machine, count, has_servers)
        if cost and cost.an_hour is None:
            sources["money"] = f"unknown for {', '.join(cost.unknown)}: {cost.why}"
        elif cost:
            estimate = "estimate from " if cost.is_estimate else ""
            source = f"{estimate}{', '.join(cost.sources)}"
            sources["money"] = f"{source}, {cost.strategy}, {cost.region}"
        return Shape(target, count, batch, length[0], steps, step, hours, cost, sources)

    def _cost(self, machine: Machine, count: int, has_servers: bool) -> Cost:
        of_task = machine.type, machine.accelerator, machine.accelerator_count
        pools = [PoolRequest("chief", count, *of_task)]
        if has_servers and self._job:
            cluster = Cluster(Pool(machine)).with_training_tasks(count)
            servers = reduction_server.replica_count(replace(self._job, cluster=cluster))
            pools.append(PoolRequest(reduction_server.KEY, servers, reduction_server.MACHINE))
        strategy = self._job.scheduling.strategy if self._job else "STANDARD"
        request = JobRequest("forecast", "", self._region, tuple(pools), strategy)
        prices = load_prices(request, self._project, self._prices)
        return estimate_cost(request, self._catalogue, prices)


def total_for(
    job: Job,
    project: Path,
    runs: Sequence[MeasuredRun],
    options: Namespace,
    *,
    catalogue: Path | None = None,
    prices: Path | None = None,
) -> Shape | None:
    """Return the forecast of a job from earlier runs of its project, the newest first.

    None if the runs are not enough, or its tasks do not all train together on equal machines. The
    epochs and the batch that the trainer's `options` set replace those of the newest run.
    """
    cluster, workers = job.cluster, job.cluster.workers
    count = cluster.chief.count + (workers.count if workers else 0)
    is_equal = not workers or workers.machine == cluster.chief.machine
    if not runs or not is_equal or cluster.parameter_servers or job.tuning:
        return None
    batch = options.global_batch_size and options.global_batch_size / count
    if options.batch_size:  # rows of a GPU, or of a task without one
        batch = options.batch_size * max(1, cluster.chief.machine.gpu_count)
    try:
        clusters = Clusters(project, job=job, catalogue=catalogue, prices=prices)
        target = clusters.default()
    except DistlaunchError:
        return None
    shapes, _ = clusters.forecast_all(
        runs, [target], [count], batch=batch, epochs=options.epochs, steps=options.steps_per_epoch
    )
    return shapes[0] if shapes else None


def best_shapes(shapes: Sequence[Shape]) -> list[Shape]:
    """Return the shapes that no other one beats in time and money; none where money is unknown.

    Times are compared in two digits: smaller differences are not worth money.
    """
    return pareto_front((s, float(f"{s.hours.mid:.2g}"), s.money.mid) for s in shapes if s.money)


def to_json(shapes: Sequence[Shape], refusals: Sequence[str]) -> dict[str, Any]:
    """Return the forecast with the fields of ``forecast --json``."""
    best = best_shapes(shapes)
    rows = [shape.as_json(is_best=shape in best) for shape in shapes]
    return {"shapes": rows, "refused": list(refusals), "not_included": NOT_INCLUDED}


def to_text(shapes: Sequence[Shape]) -> list[str | Table]:
    """Return a table, and the source of each figure."""
    best = best_shapes(shapes)
    rows = [_HEADS, *(_row(shape, is_best=shape in best) for shape in shapes)]
    has_money = any(shape.cost for shape in shapes)
    shown = [row if has_money else row[:-2] for row in rows]
    folded = [column for column in _RANGES if column < len(shown[0])]
    parts: list[str | Table] = [Table(shown, optional=_OPTIONAL, folded=folded), ""]
    if best:
        parts.append("* no other cluster here is both faster and cheaper")
    notes: dict[str, dict[str, list[int]]] = {}
    for shape in shapes:
        for part, source in shape.sources.items():
            machines = notes.setdefault(f"{part}: {source}", {})
            machines.setdefault(str(shape.target), []).append(shape.workers)
    for note, machines in notes.items():
        is_of_all = sum(map(len, machines.values())) == len(shapes)
        of = [f"{name} x {','.join(map(str, counts))}" for name, counts in machines.items()]
        parts.append(note if is_of_all else f"{note} [{'; '.join(of)}]")
    return [*parts, f"not included: {NOT_INCLUDED}"]


def _row(shape: Shape, *, is_best: bool) -> tuple[str, ...]:
    time, _, money = shape.describe_total().partition(", ")
    return (
        str(shape.target),
        str(shape.workers),
        f"{shape.batch:g}",
        _text(Range(*(1000 * seconds for seconds in shape.step)), "ms"),
        f"{shape.workers * shape.batch / shape.step.mid:,.0f}",
        time,
        money or ("unknown" if shape.cost else ""),
        "*" if is_best else "",
    )


def _text(values: Range, unit: str) -> str:
    """Return a value and its range, such as ``1.2 h (0.9-2.1)``."""
    low, mid, high = map(_number, values)
    return f"{mid} {unit} ({low}-{high})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _json_range(values: Range) -> dict[str, float]:
    return {name: float(f"{value:.6g}") for name, value in values._asdict().items()}
