"""How far training is, as one line with a bar."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeGuard

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

    def see(self, event: Mapping[str, object]) -> str:
        """Return the line after an event; an event that cannot be understood changes nothing."""
        kind = event["event"]
        if kind == "ready":
            self._plan = {name: number for name, number in event.items() if _is_finite(number)}
            self._first = None
        elif kind == "epoch":
            rate = event.get("examples_per_second")
            self._rate = rate if _is_number(rate) else self._rate
        elif kind == "step":
            self._text = self._line(event)
        return self._text

    def _line(self, event: Mapping[str, object]) -> str:
        step, epoch, loss = (event.get(name) for name in ("step", "epoch", "loss"))
        if not _is_finite(step):
            return self._text
        total = self._total("epochs", "steps_per_epoch")
        parts = []
        if _is_number(epoch):
            parts.append(f"epoch {epoch:.0f}{_of(self._total('epochs'))}")
        parts.append(f"step {step:.0f}{_of(total)}")
        if _is_number(loss):
            parts.append(f"loss {loss:.4g}")
        rate = self._rate or self._rate_so_far(step, event.get("time"))
        if rate:
            parts.append(f"{rate:,.0f} examples/s")
        bar = f"{_bar(step / total)} " if total else ""
        return bar + " · ".join(parts)

    def _total(self, *factors: str) -> float:
        """Return a product of the plan's numbers, 0 where one of them is not known."""
        return math.prod(self._plan.get(name, 0) for name in factors)

    def _rate_so_far(self, step: float, time: object) -> float | None:
        """Return examples a second since the first step, which itself takes long."""
        if not _is_number(time):
            return None
        if self._first is None:
            self._first = (step, time)
        steps, seconds = step - self._first[0], time - self._first[1]
        return self._plan.get("global_batch", 0) * steps / seconds if seconds > 0 else None


def _bar(part: float) -> str:
    """Return a bar of which a part is full."""
    return f"[{'#' * int(_CELLS * min(max(part, 0), 1)):-<{_CELLS}}]"


def _of(total: float) -> str:
    """Return how many there are in all, as ``/5``, where that is known."""
    return f"/{total:.0f}" if total else ""


def _is_finite(value: object) -> TypeGuard[float]:
    return _is_number(value) and math.isfinite(value)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
