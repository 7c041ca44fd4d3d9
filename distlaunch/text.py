"""Counts, lists of names, durations and tables as text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SHORT_DURATION = 10.0  # seconds
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")  # a colour sequence (SGR)


def plural(count: int, noun: str) -> str:
    """Return a count and its noun, such as ``1 row`` or ``1,200 rows``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def percent(share: float) -> str:
    """Return a share such as ``80 %``."""
    return f"{100 * share:.0f} %"


def join_names(names: Iterable[object], conjunction: str = "and") -> str:
    """Return names as ``a, b and c``."""
    *others, last = map(str, names)
    return f"{', '.join(others)} {conjunction} {last}" if others else last


def next_steps(commands: Iterable[str]) -> str:
    """Return a line that names commands of distlaunch that may follow."""
    return f"next: {' · '.join(f'distlaunch {command}' for command in commands)}"


def duration(seconds: float) -> str:
    """Return a time in its two largest units, as ``2 min 3 s``; a short one as ``1.8 s``."""
    if seconds < _SHORT_DURATION:
        return f"{max(seconds, 0.0):.1f} s"
    left = int(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if parts or count:
            parts.append(f"{count} {unit}" if count else "")
    return " ".join(filter(None, parts[:2]))


def without_colours(text: str) -> str:
    """Return text without colour sequences."""
    return _COLOUR.sub("", text) if "\x1b" in text else text


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text, the first of which may be heads; as text each column fits its longest cell.

    Cells may have colour sequences, which count for nothing.
    """

    rows: Sequence[Sequence[str]]
    flush_left: bool = False
    optional: Sequence[int] = ()
    """The columns that a narrow terminal leaves out, in this order."""
    folded: Sequence[int] = ()
    """The columns whose cells a terminal may break into lines."""

    def __str__(self) -> str:
        columns = zip(*self.rows, strict=True)
        widths = [max(len(without_colours(cell)) for cell in column) for column in columns]
        return "\n".join("  ".join(map(self._aligned, row, widths)).rstrip() for row in self.rows)

    def _aligned(self, cell: str, width: int) -> str:
        space = " " * (width - len(without_colours(cell)))
        return cell + space if self.flush_left else space + cell
