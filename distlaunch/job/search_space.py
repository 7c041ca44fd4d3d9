"""The values of tuned parameters: on their scales, and as a program's arguments."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distlaunch.job.model import Scale


def interpolate(low: float, high: float, scale: Scale, fraction: float) -> float:
    """Return the number at a fraction (0 to 1) of a range, as Vertex AI's scales define it."""
    if scale == "log":
        return low * math.pow(high / low, fraction)
    if scale == "reverse_log":
        return high + low - low * math.pow(high / low, 1 - fraction)
    return low + (high - low) * fraction


def argument(value: float | str) -> str:
    """Return a value as it is in an argument; 64.0 is 64, for options that take integers."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
