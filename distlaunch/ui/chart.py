"""Charts as text, for terminals and pipes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MARKS = "*o+x#@%&"
_SEVERAL = "="  # a place with points of several series
_WIDTH = 60  # of a chart, in characters
_LEAST_WIDTH = 20  # in a narrow terminal
_LOG_SPAN = 100  # values that span more, and are positive, are shown on a logarithmic axis


def bars(rows: Sequence[tuple[str, float, str]], width: int = 40) -> str:
    """Return a bar per row of a label, a value of 0 or more, and a text behind the bar."""
    most = max((value for _, value, _ in rows), default=0.0)
    name = max((len(label) for label, _, _ in rows), default=0)
    drawn = []
    for label, value, text in rows:
        bar = ("#" * (round(width * value / most) if most else 0)).ljust(width)
        drawn.append(f"{label.ljust(name)}  {bar}  {text}".rstrip())
    return "\n".join(drawn)


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    height: int = 10,
    *,
    columns: int | None = None,
    x_name: str = "",
    is_log: bool = False,
) -> str:
    """Return points of several series over common axes, each with a mark, within some columns.

    Points that are not finite are left out; there is no chart without two values of x. The axis of
    y is logarithmic if that is requested or values differ in size, such as a loss that falls from
    100 to 0.1, and all are positive.
    """
    points = {
        name: [(x, y) for x, y in values if math.isfinite(x) and math.isfinite(y)]
        for name, values in series.items()
    }
    xs = [x for values in points.values() for x, _ in values]
    ys = [y for values in points.values() for _, y in values]
    if len(set(xs)) < 2:
        return ""
    low, high = min(ys), max(ys)
    is_log = low > 0 and (is_log or high / low > _LOG_SPAN)
    top, bottom = (math.log(high), math.log(low)) if is_log else (high, low)
    labels = [f"{high:.4g}", *[""] * (height - 2), f"{low:.4g}"]
    margin = max(map(len, labels))
    left = _WIDTH if columns is None else columns - margin - 2
    width = min(_WIDTH, max(_LEAST_WIDTH, left))
    grid = [[" "] * width for _ in range(height)]
    for mark, values in zip(_MARKS * len(points), points.values(), strict=False):
        for x, y in values:
            column = round((x - min(xs)) / (max(xs) - min(xs)) * (width - 1))
            above = top - (math.log(y) if is_log else y)
            row = round(above / (top - bottom or 1) * (height - 1))
            grid[row][column] = mark if grid[row][column] in (" ", mark) else _SEVERAL
    rows = [
        f"{label.rjust(margin)} |{''.join(row)}".rstrip()
        for label, row in zip(labels, grid, strict=True)
    ]
    first, last = f"{min(xs):g}", f"{max(xs):g}"
    marks = [f"{mark} {name}" for mark, name in zip(_MARKS * len(points), points, strict=False)]
    marks += [f"{_SEVERAL} several"] if any(_SEVERAL in row for row in grid) else []
    between = x_name.center(width - len(first) - len(last))
    below = [
        f" +{'-' * width}",
        f"  {first}{between}{last}",
        "  " + "  ".join(marks) + " (log)" * is_log,
    ]
    return "\n".join([*rows, *(" " * margin + line for line in below)])
