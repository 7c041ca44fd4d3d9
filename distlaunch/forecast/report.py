"""Forecasts of clusters as a table and as JSON, with the Pareto front of time and money."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.forecast.fit import forecast_step
from distlaunch.forecast.model import Range, pareto_front
from distlaunch.text import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlaunch.forecast.fit import Target
    from distlaunch.forecast.measured import MeasuredRun

_START = {True: Range(5, 15, 40), False: Range(120, 300, 900)}  # seconds, on this machine or not
_HOUR = 3600  # seconds
_MINUTES = 0.1  # hours below which a time is printed in minutes
NOT_INCLUDED = "validation, checkpoints and what is done between epochs"


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a cluster for an hour, None if a part is unknown."""

    an_hour: float | None
    currency: str
    source: str
    is_estimate: bool


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
    price: Price | None
    sources: dict[str, str]

    @property
    def money(self) -> Range | None:
        """The money for the hours."""
        if self.price is None or self.price.an_hour is None:
            return None
        return Range(*(hours * self.price.an_hour for hours in self.hours))

    def as_json(self, *, is_best: bool) -> dict[str, Any]:
        """Return it with the fields of ``forecast --json``."""
        machine, price = self.target.machine, self.price
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
            "currency": price.currency if price else None,
            "is_estimate": price.is_estimate if price else None,
            "is_best": is_best,
            "sources": self.sources,
        }


def forecast_shape(
    runs: Sequence[MeasuredRun],
    target: Target,
    workers: int,
    *,
    batch: float | None = None,
    epochs: int | None = None,
    price: Price | None = None,
    has_servers: bool = False,
) -> Shape:
    """Return the forecast of a cluster; DistlaunchError is raised as by `forecast_step`.

    `batch` are rows of a task and `epochs` passes over the data, by default those of the first run.
    """
    run = runs[0]
    batch, epochs = batch or run.batch, epochs or run.epochs
    step = forecast_step(runs, target, workers, batch=batch, has_servers=has_servers)
    steps = math.ceil(run.examples / (batch * workers)) * epochs
    start = _START[target.is_local]
    pairs = zip(step.seconds, start, strict=True)
    hours = Range(*((steps * seconds + wait) / _HOUR for seconds, wait in pairs))
    low, mid, high = (f"{seconds / 60:.2g}" for seconds in start)
    sources = step.sources | {"start": f"assumed: {mid} min ({low}-{high})"}
    if price:
        sources["money"] = price.source
    return Shape(target, workers, batch, epochs, steps, step.seconds, hours, price, sources)


def best_shapes(shapes: Sequence[Shape]) -> list[Shape]:
    """Return the shapes that no other one beats in time and money; none where money is unknown."""
    return pareto_front((s, s.hours.mid, s.money.mid) for s in shapes if s.money)


def to_json(shapes: Sequence[Shape], refusals: Sequence[str]) -> dict[str, Any]:
    """Return the forecast with the fields of ``forecast --json``."""
    best = best_shapes(shapes)
    rows = [shape.as_json(is_best=shape in best) for shape in shapes]
    return {"shapes": rows, "refused": list(refusals), "not_included": NOT_INCLUDED}


def to_text(shapes: Sequence[Shape]) -> str:
    """Return a table, and the source of each figure."""
    best = best_shapes(shapes)
    heads = ("machine", "workers", "rows", "step ms", "examples/s", "time", "money", "")
    rows = [_row(shape, is_best=shape in best) for shape in shapes]
    lines = [table([heads, *rows]), ""]
    if best:
        lines.append("* no other cluster here is both faster and cheaper")
    notes: dict[str, dict[str, list[int]]] = {}
    for shape in shapes:
        for part, source in shape.sources.items():
            machines = notes.setdefault(f"{part}: {source}", {})
            machines.setdefault(shape.target.describe(), []).append(shape.workers)
    for note, machines in notes.items():
        is_of_all = sum(map(len, machines.values())) == len(shapes)
        of = [f"{name} x {','.join(map(str, counts))}" for name, counts in machines.items()]
        lines.append(note if is_of_all else f"{note} [{'; '.join(of)}]")
    return "\n".join([*lines, f"not included: {NOT_INCLUDED}"])


def _row(shape: Shape, *, is_best: bool) -> tuple[str, ...]:
    step = Range(*(1000 * seconds for seconds in shape.step))
    money = shape.money
    unit, scale = ("h", 1) if shape.hours.mid >= 1 else ("min", 60)
    return (
        shape.target.describe(),
        str(shape.workers),
        f"{shape.batch:g}",
        _text(step),
        f"{shape.workers * shape.batch / shape.step.mid:,.0f}",
        f"{_text(Range(*(scale * hours for hours in shape.hours)))} {unit}",
        f"{_text(money)} {shape.price.currency}" if money and shape.price else "unknown",
        "*" if is_best else "",
    )


def _text(values: Range) -> str:
    """Return a value and its range, such as ``1.2 (0.9-2.1)``."""
    low, mid, high = map(_number, values)
    return f"{mid} ({low}-{high})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _json_range(values: Range) -> dict[str, float]:
    return {name: float(f"{value:.6g}") for name, value in values._asdict().items()}
