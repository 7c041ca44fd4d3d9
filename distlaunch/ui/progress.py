"""How far training is, as one line with a bar."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from distlaunch.summary import as_number
from distlaunch.text import duration

if TYPE_CHECKING:
    from collections.abc import Mapping

_CELLS = 20  # characters of the bar


class Progress:
    """Follows the events of one task's program."""

    def __init__(self) -> None:
        self._plan: dict[str, float] = {}
        self._first: tuple[float, float] | None = None  # step and time of the first step seen
        self._rate: float | None = None  # examples a second
        self._text = ""

    def update(self, event: Mapping[str, object]) -> str:
        """Return the line after an event; an event that cannot be understood changes nothing."""
        kind, numbers = event["event"], _finite_numbers(event)
        if kind == "ready":
            self._plan = numbers
            self._first = None
        elif kind == "epoch":
            self._rate = numbers.get("examples_per_second", self._rate)
        elif kind == "step" and "step" in numbers:
            self._text = self._line(numbers, as_number(event.get("loss")))
        return self._text

    def _line(self, numbers: Mapping[str, float], loss: float | None) -> str:
        step, total = numbers["step"], self._total("epochs", "steps_per_epoch")
        parts = [f"step {step:.0f}{_of(total)}"]
        if "epoch" in numbers:
            parts.insert(0, f"epoch {numbers['epoch']:.0f}{_of(self._total('epochs'))}")
        if loss is not None:
            parts.append(f"loss {loss:.4g}")
        speed = self._steps_per_second(step, numbers.get("time"))
        rate = self._rate or self._plan.get("global_batch", 0) * speed
        if rate:
            parts.append(f"{rate:,.0f} examples/s")
        if speed and 0 <= step < total:
            parts.append(f"{duration((total - step) / speed)} left")
        bar = f"{_bar(step / total)} " if total else ""
        return bar + " · ".join(parts)

    def _total(self, *factors: str) -> float:
        """Return a product of the plan's numbers, 0 where one of them is not known."""
        return math.prod(self._plan.get(name, 0) for name in factors)

    def _steps_per_second(self, step: float, time: float | None) -> float:
        """Return the speed since the first step, which itself takes long; 0 if unknown."""
        if time is None:
            return 0.0
        if self._first is None:
            self._first = (step, time)
        steps, seconds = step - self._first[0], time - self._first[1]
        return max(steps / seconds, 0.0) if seconds > 0 and math.isfinite(steps / seconds) else 0.0


def _bar(part: float) -> str:
    """Return a bar of which a part is full."""
    return f"[{'#' * int(_CELLS * min(max(part, 0), 1)):-<{_CELLS}}]"


def _of(total: float) -> str:
    """Return how many there are in all, as ``/5``, where that is known."""
    return f"/{total:.0f}" if total else ""


def _finite_numbers(event: Mapping[str, object]) -> dict[str, float]:
    numbers = {name: as_number(value) for name, value in event.items()}
    return {name: n for name, n in numbers.items() if n is not None and math.isfinite(n)}
