"""The metric file of a tuning trial, as cloudml-hypertune writes it: a JSON object a line."""

from __future__ import annotations

from contextlib import suppress
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


def read_metric(lines: str, name: str) -> tuple[float | None, int | None, set[str]]:
    """Read what cloudml-hypertune writes: a JSON object a line.

    Returns
    -------
    tuple
        The last value of a metric and its step, None if it was not reported, and the names of all
        metrics.
    """
    value, step, names = None, None, set[str]()
    for record in read_records(lines):
        names |= record.keys() - {"checkpoint_path", "global_step", "timestamp", "trial"}
        if name in record:
            with suppress(OverflowError, TypeError, ValueError):  # not a number
                value, step = float(record[name]), int(float(record.get("global_step") or 0))
    return value, step, names
