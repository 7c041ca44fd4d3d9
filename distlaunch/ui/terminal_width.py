"""Text and tables within the width of a terminal."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from distlaunch.text import Table, without_colours

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_GAP = 2  # spaces between two columns
_HANG = 4  # spaces before the continuations of a line without an indent
_WORD = re.compile(r"\S+")
_LABEL = re.compile(r"\s*\S+(?: \S+)*\s{2,}")  # a continuation begins below what is behind it


def fit(part: str | Table, width: int) -> str:
    """Return text or a table in lines that fit into `width` columns of a terminal.

    A longer word of a text stays whole, so that a path or link can be copied.
    """
    if isinstance(part, Table):
        return _fit_table(part, width)
    lines = part.split("\n")
    return "\n".join(line if cell_len(line) <= width else _wrap(line, width) for line in lines)


def _wrap(line: str, width: int) -> str:
    text = Text.from_ansi(line)
    label = _LABEL.match(text.plain)
    hang = label.end() if label else width
    if hang > width // 2:
        hang = len(text.plain) - len(text.plain.lstrip()) or _HANG
    first, *others = text.divide(_breaks(text.plain, hang, width))
    return _drawn(width, [first, *(Text(" " * hang) + each for each in others)])


def _breaks(line: str, hang: int, width: int) -> Iterator[int]:
    """Yield where the continuations of a line begin."""
    begun = indent = 0
    for word in _WORD.finditer(line):
        filled = indent + cell_len(line[begun : word.start()])
        if filled > hang and filled + cell_len(word[0]) > width:
            begun, indent = word.start(), hang
            yield begun


def _fit_table(table: Table, width: int) -> str:
    columns = zip(*table.rows, strict=True)
    widths = [max(cell_len(without_colours(cell)) for cell in column) for column in columns]
    left_out: list[int] = []
    for column in table.optional:
        if sum(widths) + _GAP * (len(widths) - len(left_out) - 1) <= width:
            break
        left_out.append(column)
        widths[column] = 0
    kept = [column for column in range(len(widths)) if column not in left_out]
    grid = Grid.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
    for column in kept:
        folds = column in table.folded
        grid.add_column(
            justify="left" if table.flush_left else "right",
            no_wrap=not folds,
            overflow="fold" if folds else "ellipsis",
        )
    for row in table.rows:
        grid.add_row(*(Text.from_ansi(row[column]) for column in kept))
    drawn = _drawn(width, [grid])
    if not left_out:
        return drawn
    names = ", ".join(table.rows[0][column] for column in sorted(left_out))
    return f"{drawn}\n({names}: in a wider terminal)"


def _drawn(width: int, parts: Iterable[Text | Grid]) -> str:
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=True,
        color_system="standard",
        legacy_windows=False,  # otherwise found out from stdout, which is not written to
    )
    with console.capture() as capture:
        for part in parts:
            console.print(part, soft_wrap=isinstance(part, Text))
    return "\n".join(line.rstrip() for line in capture.get().removesuffix("\n").split("\n"))
