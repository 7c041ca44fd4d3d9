"""The table of Keras's symbols: `keras_table.yaml`, its rows, and their page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from commands import escape

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True)
class Row:
    """What is promised for a symbol, or for a symbol with these arguments."""

    module: str
    name: str  # LSTM(stateful=True)
    kind: str  # same, refused or none
    text: str = ""  # of same: a flag or an argument; of refused: the sentence; of none: the reason
    note: str = ""

    @property
    def symbol(self) -> str:
        return self.name.partition("(")[0]

    @property
    def trained(self) -> str:
        """Return the row to train: with the argument that makes the weights the same."""
        given = "" if not self.text or self.text.startswith("--") else f"({self.text})"
        return f"{self.module}.{self.name}{given if self.kind == 'same' else ''}"

    @property
    def test(self) -> str:
        """Return the name of the test that trains the row."""
        return f"test_{self.kind}[{self.trained}]"


def rows() -> Iterator[Row]:
    """Yield the rows, by module and name."""
    for module, kinds in yaml.safe_load(DATA.read_text(encoding="utf-8")).items():
        notes = kinds.get("notes", {})
        found = [Row(module, name, "same", "", notes.get(name, "")) for name in kinds["same"]]
        for kind, texts in (("same", "with"), ("refused", "refused"), ("none", "none")):
            found += [
                Row(module, name, kind, text, notes.get(name, ""))
                for text, names in kinds.get(texts, {}).items()
                for name in names
            ]
        yield from sorted(found, key=lambda row: (row.symbol.lower(), row.name))


def page() -> str:
    """Return a table for each module, and the symbols of no matter by their reasons."""
    tables: dict[str, list[str]] = {}
    others: dict[tuple[str, str], list[str]] = {}
    for row in rows():
        lines = tables.setdefault(row.module, [])
        if row.kind == "none":
            others.setdefault((row.module, row.text), []).append(f"`{row.name}`")
        else:
            lines.append(f"| `{row.name}` | {_result(row)} | `{row.test}` |")
    parts = []
    for module, lines in tables.items():
        parts += [f"## {module}\n", "| | on N workers | test |", "| --- | --- | --- |", *lines, ""]
        for (where, reason), names in others.items():
            if where == module:
                parts.append(f"- {reason[0].upper()}{reason[1:]}: {', '.join(names)}")
        parts.append("")
    return "\n".join(parts)


def _result(row: Row) -> str:
    if row.kind == "refused":
        result = f"refused: '{escape(row.text)}'"
    else:
        result = f"the same with `{row.text}`" if row.text else "the same"
    return f"{result}; {row.note}" if row.note else result
