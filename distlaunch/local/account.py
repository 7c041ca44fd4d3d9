"""What a task's program reports, in one attempt, of the examples it was trained on."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, TypeGuard

from distlaunch.local.coverage import MOST_EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    Event = Mapping[str, Any]
    Runs = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class DataPlan:
    """How a task goes through the data, from its ``ready`` event.

    Parameters
    ----------
    examples
        How many there are.
    steps
        Steps of an epoch.
    start
        The step that it resumes from.
    """

    examples: int
    steps: int
    start: int

    def __str__(self) -> str:
        return f"{self.examples:,} examples, {self.steps:,} steps an epoch, from step {self.start}"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a task saw in some steps of an epoch.

    Parameters
    ----------
    epoch
        Numbered from 0.
    end
        One past the last of the steps.
    runs
        The first of some consecutive examples, and how many they are.
    unknown
        How many rows were none of the examples.
    """

    task: str
    epoch: int
    end: int
    runs: Runs
    unknown: int


@dataclass(frozen=True, slots=True)
class Reading:
    """What a task read for its training.

    Parameters
    ----------
    bytes
        None where they cannot be measured.
    index_bytes
        Those that it read to index the data.
    data_bytes
        The size of all data.
    records
        How many it read.
    steps
        The steps that it was trained in meanwhile.
    """

    bytes: int | None
    index_bytes: int
    data_bytes: int
    records: int
    steps: int

    def __add__(self, later: Reading) -> Reading:
        is_known = self.bytes is not None and later.bytes is not None
        return Reading(
            bytes=(self.bytes or 0) + (later.bytes or 0) if is_known else None,
            index_bytes=self.index_bytes + later.index_bytes,
            data_bytes=later.data_bytes,
            records=self.records + later.records,
            steps=self.steps + later.steps,
        )

    def share(self, steps_per_epoch: int) -> float | None:
        """Return which part of the data it read in an epoch, where that is known."""
        data = self.data_bytes * self.steps
        return self.bytes * steps_per_epoch / data if data and self.bytes is not None else None


class TaskAudit:
    """Reads the events of one task in one attempt, up to its ``ready`` at first.

    Parameters
    ----------
    task
        Its name.
    events
        Its events, in order.
    """

    def __init__(self, task: str, events: Iterable[Event]) -> None:
        self.task = task
        self.course: DataPlan | None = None
        self.step = 0  # the last one reported
        self.reading: Reading | None = None
        self.is_audited = False  # whether anything was reported for the audit
        self.malformed = 0  # how many events could not be understood
        self.first_malformed = ""  # the first of them
        self._epoch = 0
        self._events = iter(events)
        self._read_until_ready()

    def seen(self) -> Iterator[Seen]:
        """Read the other events and yield the examples in them, epoch after epoch."""
        for event in self._events:
            seen = self._read(event)
            if seen:
                yield seen

    def _read_until_ready(self) -> None:
        for event in self._events:
            self._read(event)
            if self.course:
                return

    def _read(self, event: Event) -> Seen | None:
        try:
            return self._parse(event)
        except _BadEventError as problem:
            self.first_malformed = self.first_malformed or str(problem)
            self.malformed += 1
            return None

    def _parse(self, event: Event) -> Seen | None:
        self.is_audited |= event["event"] == "audit"
        match event:
            case {"event": "ready"}:
                self._begin(event)
            case {"event": "audit", "kind": "seen"}:
                return self._seen(event)
            case {"event": "audit", "kind": "read"}:
                self.reading = self._reading(event)
            case {"event": "audit"}:
                raise _BadEventError(f"kind is {short(event.get('kind'))}, neither seen nor read")
            case {"step": step} if _is_count(step):
                self.step = max(self.step, step)
        return None

    def _begin(self, event: Event) -> None:
        if self.course:
            raise _BadEventError("it was ready a second time")
        examples, steps, start = map(event.get, ("examples", "steps_per_epoch", "step"))
        if not (_is_count(examples) and _is_count(steps) and _is_count(start)):
            return  # as a program may that is not to be audited
        if not 1 <= examples <= MOST_EXAMPLES or steps < 1:
            raise _BadEventError(f"{examples:,} examples in {steps:,} steps cannot be counted")
        self.course = DataPlan(examples, steps, start)
        self.step = max(self.step, start)

    def _seen(self, event: Event) -> Seen:
        course = self.course
        if course is None:
            raise _BadEventError("no ready before it with examples, steps_per_epoch and step")
        start, end = _count(event, "from"), _count(event, "to")
        epoch = start // course.steps
        if not course.start <= start < end <= (epoch + 1) * course.steps:
            raise _BadEventError(f"steps {start} to {end} are no part of an epoch: {course}")
        runs = _runs(event.get("positions"), course.examples)
        unknown = _count(event, "unknown") if "unknown" in event else 0
        if epoch < self._epoch:
            raise _BadEventError(f"it goes back from epoch {self._epoch + 1} to {epoch + 1}")
        self._epoch = epoch
        self.step = max(self.step, end)
        return Seen(self.task, epoch, end, runs, unknown)

    def _reading(self, event: Event) -> Reading:
        return Reading(
            bytes=None if event.get("bytes", 0) is None else _count(event, "bytes"),
            index_bytes=_count(event, "index_bytes"),
            data_bytes=_count(event, "data_bytes"),
            records=_count(event, "records"),
            steps=self.step - self.course.start if self.course else 0,
        )


class _BadEventError(Exception):
    """An event that is not as documented."""


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= sys.maxsize


def _count(event: Event, name: str) -> int:
    value = event.get(name)
    if not _is_count(value):
        raise _BadEventError(f"{name} is {short(value)}, not a count")
    return value


def _runs(value: Any, examples: int) -> Runs:
    """Return the runs of examples in an event; all must exist."""
    try:
        runs = [(first, count) for first, count in value]
    except (TypeError, ValueError):
        raise _BadEventError(f"positions is {short(value)}, no list of pairs") from None
    for first, count in runs:
        if not (_is_count(first) and _is_count(count) and first + count <= examples):
            run = short([first, count])
            raise _BadEventError(f"positions has {run}, not a first and a count of {examples:,}")
    return runs
