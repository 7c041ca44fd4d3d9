"""What the trainer will do with its data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DataFacts:
    """Files, examples, and the rows of a step.

    Parameters
    ----------
    files
        How many files the container has; None where there are none or they are unknown.
    examples
        Examples in an epoch; None where unknown.
    replicas
        What trains in step: GPUs, or machines without one.
    global_batch
        Rows of a step over all replicas; None where unknown.
    steps_per_epoch
        The job's own value, else as many as see each example once.
    rows
        The fewest and the most rows of a replica in a step, except in a smaller last one.
    last_rows
        Rows of the last step over all replicas.
    shards
        Logical shards; None for a ``tf.data.Dataset``.
    unknown
        Why files and examples are unknown, empty where they are known.
    """

    files: int | None
    examples: int | None
    replicas: int
    global_batch: int | None
    steps_per_epoch: int | None
    rows: tuple[int, int] | None
    last_rows: int | None
    shards: int | None
    unknown: str = ""

    def lines(self) -> tuple[str, ...]:
        """Return the lines of the plan."""
        return tuple(filter(None, (self._examples_line(), self._steps_line())))

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data; ``is_all`` is kept for scripts that read it."""
        return asdict(self) | {"is_all": True}

    def _examples_line(self) -> str:
        if self.examples is None:
            return f"unknown (run 'distlaunch check --run' or 'distlaunch local'): {self.unknown}"
        files = f" in {_counted(self.files, 'file')}" if self.files else ""
        return f"{_counted(self.examples, 'example')}{files}"

    def _steps_line(self) -> str:
        if not self.global_batch or not self.rows:
            return ""
        least, most = self.rows
        share = f"{most:,}" if least == most else f"{least:,} or {most:,}"
        split = "" if self.replicas == 1 else f", {share} on each of {self.replicas:,} replicas"
        return f"{_counted(self.global_batch, 'row')} a step{split}{self._epoch()}"

    def _epoch(self) -> str:
        if self.steps_per_epoch is None:
            return ""
        last = ""
        if self.last_rows and self.last_rows != self.global_batch and self.steps_per_epoch > 1:
            last = f", the last of {self.last_rows:,}"
        return f"; {_counted(self.steps_per_epoch, 'step')} an epoch{last}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
