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
        How many there are; None where they cannot be read from here.
    examples
        In an epoch; None where that cannot be told.
    is_all
        Whether there are no more examples: where there are very many, not all are counted.
    replicas
        What trains in step: GPUs, or machines without one.
    global_batch
        Rows of a step over all replicas, None where that cannot be told.
    steps_per_epoch
        As the job says, else as many as see each example once.
    rows
        The fewest and the most rows of a replica in a step, but for a smaller last one.
    last_rows
        Rows of the last step over all replicas.
    shards
        Logical shards, None for a data set of the user's own.
    """

    files: int | None
    examples: int | None
    is_all: bool
    replicas: int
    global_batch: int | None
    steps_per_epoch: int | None
    rows: tuple[int, int] | None
    last_rows: int | None
    shards: int | None

    def lines(self) -> tuple[str, ...]:
        """Return what it comes to for a person."""
        return tuple(filter(None, (self._of_examples(), self._of_steps())))

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)

    def _of_examples(self) -> str:
        files = f" in {_counted(self.files, 'file')}" if self.files else ""
        if self.examples is None:
            return f"examples{files} that are not counted from here" if files else ""
        more = "" if self.is_all else "more than "
        return f"{more}{_counted(self.examples, 'example')}{files}"

    def _of_steps(self) -> str:
        if not self.global_batch or not self.rows:
            return ""
        least, most = self.rows
        each = f"{most:,}" if least == most else f"{least:,} or {most:,}"
        share = "" if self.replicas == 1 else f", {each} on each of {self.replicas:,} replicas"
        return f"{_counted(self.global_batch, 'row')} a step{share}{self._epoch()}"

    def _epoch(self) -> str:
        if self.steps_per_epoch is None:
            return ""
        last = ""
        if self.last_rows and self.last_rows != self.global_batch and self.steps_per_epoch > 1:
            last = f", the last of {self.last_rows:,}"
        return f"; {_counted(self.steps_per_epoch, 'step')} an epoch{last}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
