"""The events that a task's program appends to a file, and what they report for an audit."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    Event = Mapping[str, Any]
    Runs = list[tuple[int, int]]
    from pathlib import Path

MAX_EXAMPLES = 1 << 30  # an audit takes 3 bytes of memory for each

_AT_ONCE = 1 << 20  # bytes read in one go; a longer line than that is no event


class EventFile:
    """Reads what was appended to a file since the last look; the file may not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_to = 0
        self._partial = b""

    def poll(self) -> list[dict[str, Any]]:
        """Return the new events; lines that are none are left out, half ones wait for the rest."""
        lines = (self._partial + self._appended()).split(b"\n")
        self._partial = lines.pop()
        if len(self._partial) > _AT_ONCE:
            self._partial = b"\0"  # makes no event of what the line ends with
        return [event for event in map(_event, lines) if event is not None]

    def rest(self) -> Iterator[dict[str, Any]]:
        """Go through all that is new, however much it is."""
        before = -1
        while self._read_to > before:
            before = self._read_to
            yield from self.poll()

    def _appended(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(self._read_to)
                data = file.read(_AT_ONCE)
        except OSError:
            return b""
        self._read_to += len(data)
        return data


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict) and isinstance(value.get("event"), str):
        return value
    return None


@dataclass(frozen=True, slots=True)
class DataPlan:
    """How a task goes through the data, from its ``ready`` event."""

    examples: int
    steps: int  # of an epoch
    start: int  # the step that it resumes from

    def __str__(self) -> str:
        return f"{self.examples:,} examples, {self.steps:,} steps an epoch, from step {self.start}"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a task saw in some steps of an epoch."""

    task: str
    epoch: int  # from 0
    end: int  # one past the last of the steps
    runs: Runs  # the first of some consecutive examples, and their number
    unknown: int  # rows that were none of the examples


@dataclass(frozen=True, slots=True)
class Reading:
    """What a task read for its training."""

    bytes: int | None  # None where they cannot be measured
    index_bytes: int  # those that it read to index the data
    data_bytes: int  # the size of all data
    records: int
    steps: int  # those that it was trained in meanwhile

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
    """Reads the events of one task in one attempt, up to its ``ready`` at first."""

    def __init__(self, task: str, events: Iterable[Event]) -> None:
        self.task = task
        self.plan: DataPlan | None = None
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
            if self.plan:
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
        if self.plan:
            raise _BadEventError("it was ready a second time")
        examples, steps, start = map(event.get, ("examples", "steps_per_epoch", "step"))
        if not (_is_count(examples) and _is_count(steps) and _is_count(start)):
            return  # as a program may that is not to be audited
        if not 1 <= examples <= MAX_EXAMPLES or steps < 1:
            raise _BadEventError(f"{examples:,} examples in {steps:,} steps cannot be counted")
        self.plan = DataPlan(examples, steps, start)
        self.step = max(self.step, start)

    def _seen(self, event: Event) -> Seen:
        plan = self.plan
        if plan is None:
            raise _BadEventError("no ready before it with examples, steps_per_epoch and step")
        start, end = _count(event, "from"), _count(event, "to")
        epoch = start // plan.steps
        if not plan.start <= start < end <= (epoch + 1) * plan.steps:
            raise _BadEventError(f"steps {start} to {end} are no part of an epoch: {plan}")
        runs = _runs(event.get("positions"), plan.examples)
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
            steps=self.step - self.plan.start if self.plan else 0,
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
