"""Whether each example was seen exactly once in each epoch, by the tasks' own reports."""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from distlaunch.task_files import EventFile
from distlaunch.text import Table, join_names, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    TaskEvent = Mapping[str, Any]

_MAX_EXAMPLES = 1 << 30  # an audit takes a byte of memory for each, in each epoch
_MAX_LINES = 5  # that are listed of a kind
_MAX_RUNS = 10  # of positions
_HEAD = (
    "task",
    "examples seen",
    "records read",
    "bytes read",
    "of the data an epoch",
    "index bytes",
)
_NOT_REPORTED = (
    "the program reports nothing of what it read; only the bundled trainer (trainer.task) does"
)
_NO_WHOLE_EPOCH = "nothing was proved, as no epoch was trained from its first step to its last"
_READ = ("records", "bytes", "data_bytes", "index_bytes", "steps")
_ONE_MORE = bytes([*range(1, 256), 255])  # a count of 255 means 255 or more
_NEVER = re.compile(rb"\x00+")
_OFTEN = re.compile(rb"([\x02-\xff])\1*")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of an audit: why it proves nothing, or what it proves and what was read."""

    problems: tuple[str, ...]
    text: str = ""


def audit(attempts: Iterable[Mapping[str, Path]]) -> Finding:
    """Return what the event files of a job's training tasks prove, attempt after attempt."""
    return judge([{task: EventFile(path).poll() for task, path in a.items()} for a in attempts])


def judge(attempts: Sequence[Mapping[str, Iterable[TaskEvent]]]) -> Finding:
    """Return what the events of a job's training tasks prove.

    Of steps that a later attempt trained again, only that attempt counts.
    """
    reports: list[list[TaskReport]] = []
    epochs: dict[int, EpochCounts] = {}
    limit = sys.maxsize
    for attempt in reversed(attempts):
        last = [TaskReport(task, events, limit, epochs) for task, events in attempt.items()]
        reports.insert(0, last)
        limit = min([limit, *(report.plan.start for report in last if report.plan)])
    if not any(report.is_audited for report in reports[-1]):
        return Finding(_marked([_NOT_REPORTED]))
    problems = _report_problems(reports)
    plan = _common_plan(reports)
    if plan is None:
        return Finding(_marked(problems))
    training = Training(plan, max(report.end for report in chain(*reports)), epochs)
    problems += training.violations()
    if not (problems or training.whole):
        problems = [_NO_WHOLE_EPOCH]
    tasks = [report.task for report in reports[-1]]
    lines = ([] if problems else [training.proof(tasks)]) + training.notes()
    rows = [_row(task, reports, training) for task in tasks]
    return Finding(_marked(problems), "\n".join([*_marked(lines), str(Table([_HEAD, *rows]))]))


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """How a task goes through the data, from its ``ready`` event."""

    examples: int
    steps: int  # of an epoch
    start: int  # the step that it resumes from

    def __str__(self) -> str:
        return f"{self.examples:,} examples, {self.steps:,} steps an epoch, from step {self.start}"


class EpochCounts:
    """How often each example was seen in an epoch, and how many rows each task saw."""

    def __init__(self, examples: int) -> None:
        self.rows: Counter[str] = Counter()
        self._counts = bytearray(examples)

    def add(self, task: str, runs: Iterable[tuple[int, int]]) -> None:
        """Count runs (first, count) of examples."""
        for first, count in runs:
            run = slice(first, first + count)
            self._counts[run] = self._counts[run].translate(_ONE_MORE)
            self.rows[task] += count

    def violations(self, *, is_whole: bool) -> str:
        """Describe the examples that were not seen exactly once; empty if there are none."""
        never = self._counts.count(0) if is_whole else 0
        often = len(self._counts) - self._counts.count(0) - self._counts.count(1)
        violations = [
            (never, "never seen", self._positions(_NEVER)),
            (often, "seen more than once", self._positions(_OFTEN)),
        ]
        return ", ".join(
            f"{plural(count, 'example')} {'was' if count == 1 else 'were'} {text}{positions}"
            for count, text, positions in violations
            if count
        )

    def _positions(self, kind: re.Pattern[bytes]) -> str:
        """Return the first runs of examples that were seen so often, and how often if ever."""
        runs = [
            f"{run.start()}{f'-{run.end() - 1}' if len(run[0]) > 1 else ''}{_times(run[0][0])}"
            for run in islice(kind.finditer(self._counts), _MAX_RUNS + 1)
        ]
        runs[_MAX_RUNS:] = ["…" for _ in runs[_MAX_RUNS:]]
        return f" (positions {', '.join(runs)})"


class TaskReport:
    """What one task reported in one attempt; what it saw before step `limit` is counted."""

    def __init__(
        self, task: str, events: Iterable[TaskEvent], limit: int, epochs: dict[int, EpochCounts]
    ) -> None:
        self.task = task
        self.plan: TrainingPlan | None = None
        self.is_audited = False  # whether anything was reported for the audit
        self.reading: dict[str, int] = {}  # what it read in its steps
        self._limit = limit
        self._epochs = epochs
        self._step = 0  # the last one reported
        for event in events:
            self._handle(event)

    @property
    def end(self) -> int:
        """The step up to which its training counts."""
        return min(self._step, self._limit)

    def _handle(self, event: TaskEvent) -> None:
        self.is_audited |= event["event"] == "audit"
        match event:
            case {"event": "ready", "examples": int(n), "steps_per_epoch": steps, "step": start}:
                if 0 < n <= _MAX_EXAMPLES:
                    self.plan = TrainingPlan(n, steps, start)
                    self._step = max(self._step, start)
            case {"event": "audit", "kind": "seen"}:
                self._count_seen(event)
            case {"event": "audit", "kind": "read"}:
                is_known = event["bytes"] is not None
                steps = self._step - self.plan.start if self.plan else 0
                known = {**event, "steps": steps, "bytes": event["bytes"] or 0}
                self.reading = {name: known[name] for name in _READ}
                self.reading["is_known"] = is_known
            case {"step": int(step)}:
                self._step = max(self._step, step)

    def _count_seen(self, event: TaskEvent) -> None:
        if self.plan is None:
            return
        epoch, end = event["from"] // self.plan.steps, event["to"]
        self._step = max(self._step, end)
        if end <= self._limit:
            if epoch not in self._epochs:
                self._epochs[epoch] = EpochCounts(self.plan.examples)
            self._epochs[epoch].add(self.task, event["positions"])


@dataclass(frozen=True, slots=True)
class Training:
    """What was trained in all attempts, without what was lost and trained again."""

    plan: TrainingPlan  # with the step that the first attempt began with
    end: int  # the step that the last one came to
    epochs: Mapping[int, EpochCounts]  # by number from 0

    @property
    def whole(self) -> list[EpochCounts]:
        """The epochs that were trained from their first step to their last."""
        return [counts for number, counts in self.epochs.items() if self._is_whole(number)]

    def violations(self) -> list[str]:
        """Return what is wrong with epochs, a line each."""
        lines = [
            f"epoch {number + 1}: {text}"
            for number, counts in sorted(self.epochs.items())
            if (text := counts.violations(is_whole=self._is_whole(number)))
        ]
        first, last = self.plan.start // self.plan.steps, (self.end - 1) // self.plan.steps
        count = last - first + 1 if self.end > self.plan.start else 0
        missing = count - len(self.epochs)
        unreported = f"no example is reported of {missing:,} of {plural(count, 'epoch')}"
        more = len(lines) - _MAX_LINES
        lines[_MAX_LINES:] = [f"and {plural(more, 'more epoch')}"] if more > 0 else []
        return [*lines, *([unreported] if missing > 0 else [])]

    def proof(self, tasks: Sequence[str]) -> str:
        """Return what is proved where nothing is wrong."""
        count = plural(len(self.whole), "epoch")
        return (
            f"each of {plural(self.plan.examples, 'example')} was seen exactly once in "
            f"{'' if len(self.whole) == 1 else 'each of '}{count} ({self._shares(tasks)} an epoch)"
        )

    def notes(self) -> list[str]:
        """Return what is known of partial epochs with which nothing is wrong."""
        return [
            f"epoch {number + 1} {text}"
            for number, counts in sorted(self.epochs.items())
            if not (self._is_whole(number) or counts.violations(is_whole=False))
            for text in self._parts(number)
        ]

    def _is_whole(self, number: int) -> bool:
        steps = self.plan.steps
        return self.plan.start <= number * steps and (number + 1) * steps <= self.end

    def _parts(self, number: int) -> Iterator[str]:
        start, steps = self.plan.start, self.plan.steps
        none_twice = "no example was seen more than once"
        if start > number * steps:
            whose = "was begun by an earlier run, of which nothing is known"
            yield f"{whose}: {none_twice} from step {start:,} on"
        if self.end < (number + 1) * steps:
            done = self.end - number * steps
            yield f"ended after {done:,} of its {plural(steps, 'step')}: {none_twice}"

    def _shares(self, tasks: Sequence[str]) -> str:
        """Return how many examples each task saw in an epoch."""
        shares = []
        for task in tasks:
            rows = [counts.rows[task] for counts in self.whole]
            ends = sorted({min(rows), max(rows)})
            shares.append(f"{task} {'-'.join(f'{number:,}' for number in ends)}")
        return ", ".join(shares)


def _common_plan(reports: Iterable[Sequence[TaskReport]]) -> TrainingPlan | None:
    """Return the plan of all tasks, from the first step of any; None if plans differ."""
    plans = [{report.plan for report in attempt if report.plan} for attempt in reports]
    data = {(plan.examples, plan.steps) for plan in chain(*plans)}
    if len(data) != 1 or max(map(len, plans)) > 1:
        return None
    return TrainingPlan(*data.pop(), min(plan.start for plan in chain(*plans)))


def _report_problems(reports: Sequence[Sequence[TaskReport]]) -> list[str]:
    """Describe what the tasks did not report, or not alike."""
    silent = [report.task for report in reports[-1] if not (report.is_audited and report.plan)]
    problems = [f"nothing of what it read is reported by {join_names(silent)}"] if silent else []
    plans = dict.fromkeys(str(report.plan) for report in chain(*reports) if report.plan)
    if plans and _common_plan(reports) is None:
        problems.append(f"the tasks do not go through the same data alike: {'; '.join(plans)}")
    return problems


def _row(task: str, reports: Iterable[Sequence[TaskReport]], training: Training) -> list[str]:
    """Return what a task saw and read in all attempts, as a row of the table."""
    seen = sum(counts.rows[task] for counts in training.epochs.values())
    own = [report for report in chain(*reports) if report.task == task]
    readings = [report.reading for report in own if report.reading]
    if not readings:
        return [task, f"{seen:,}", "", "", "", ""]
    total = {name: sum(reading[name] for reading in readings) for name in _READ}
    is_known = all(reading["is_known"] for reading in readings)
    data = readings[-1]["data_bytes"] * total["steps"]
    share = 100 * total["bytes"] * training.plan.steps / data if is_known and data else None
    return [
        task,
        f"{seen:,}",
        f"{total['records']:,}",
        f"{total['bytes']:,}" if is_known else "",
        "" if share is None else f"{share:.1f} %",
        f"{total['index_bytes']:,}",
    ]


def _marked(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"audit: {line}" for line in lines)


def _times(count: int) -> str:
    return f": {count} times{' or more' if count == 255 else ''}" if count else ""
