"""Forecasts of clusters as a table and as JSON, with the Pareto front of time and money."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.price.forecast.model import Range, pareto_front
from distlaunch.text import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlaunch.price import Cost
    from distlaunch.price.forecast.extrapolate import Target

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


def to_text(shapes: Sequence[Shape]) -> str:
    """Return a table, and the source of each figure."""
    best = best_shapes(shapes)
    heads = ("machine", "workers", "rows", "step", "examples/s", "time", "money", "")
    rows = [heads, *(_row(shape, is_best=shape in best) for shape in shapes)]
    if not any(shape.cost for shape in shapes):
        rows = [row[:-2] for row in rows]  # no money
    lines = [table(rows), ""]
    if best:
        lines.append("* no other cluster here is both faster and cheaper")
    notes: dict[str, dict[str, list[int]]] = {}
    for shape in shapes:
        for part, source in shape.sources.items():
            machines = notes.setdefault(f"{part}: {source}", {})
            machines.setdefault(str(shape.target), []).append(shape.workers)
    for note, machines in notes.items():
        is_of_all = sum(map(len, machines.values())) == len(shapes)
        of = [f"{name} x {','.join(map(str, counts))}" for name, counts in machines.items()]
        lines.append(note if is_of_all else f"{note} [{'; '.join(of)}]")
    return "\n".join([*lines, f"not included: {NOT_INCLUDED}"])


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
