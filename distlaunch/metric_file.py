"""The metric file of a tuning trial, as cloudml-hypertune writes it: a JSON object a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlaunch.files import parse_object

if TYPE_CHECKING:
    from collections.abc import Iterator


def read_records(lines: str) -> Iterator[dict[str, Any]]:
    """Yield the records of whole lines: metrics by name, and ``global_step``."""
    for line in lines.splitlines():
        try:
            record = parse_object(line.encode())
        except ValueError:
            continue  # the program writes the line, or was killed while it did
        yield record
