"""How far training is, as one line with a bar."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeGuard

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
        kind = event["event"]
        if kind == "ready":
            self._plan = {
                name: number
                for name, value in event.items()
                if _is_finite(number := as_number(value))
            }
            self._first = None
        elif kind == "epoch":
            rate = as_number(event.get("examples_per_second"))
            self._rate = self._rate if rate is None else rate
        elif kind == "step":
            self._text = self._line(event)
        return self._text

    def _line(self, event: Mapping[str, object]) -> str:
        step, epoch, loss = (as_number(event.get(name)) for name in ("step", "epoch", "loss"))
        if not _is_finite(step):
            return self._text
        total = self._total("epochs", "steps_per_epoch")
        parts = []
        if epoch is not None:
            parts.append(f"epoch {epoch:.0f}{_of(self._total('epochs'))}")
        parts.append(f"step {step:.0f}{_of(total)}")
        if loss is not None:
            parts.append(f"loss {loss:.4g}")
        speed = self._steps_per_second(step, as_number(event.get("time")))
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


def _is_finite(number: float | None) -> TypeGuard[float]:
    return number is not None and math.isfinite(number)


def as_number(value: object) -> float | None:
    """Return a reported value as a number; None if it is none or too large."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
