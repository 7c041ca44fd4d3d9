"""Whether each example was seen exactly once in each epoch, by the tasks' own reports.

Nothing is counted while the job runs: the reports stay in the event files and are read here
epoch after epoch, so that the counts of one epoch are all that memory has to hold.
"""

from __future__ import annotations

import re
import sys
from array import array
from dataclasses import dataclass
from functools import reduce
from heapq import merge
from itertools import chain, groupby, islice
from operator import add, attrgetter
from typing import TYPE_CHECKING, Any

from distlaunch.local.task_events import DataPlan, EventFile, TaskAudit
from distlaunch.text import join_names, plural, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from distlaunch.local.task_events import Seen

    Attempts = Sequence[Sequence[TaskAudit]]

_MAX_LINES = 5  # of a kind
_MAX_PLANS = 3
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
_MAX_NAMES = 4  # of tasks that are listed
_ONE_MORE = bytes([*range(1, 256), 255])  # a count of 255 means 255 or more
_NEVER = re.compile(rb"\x00")
_OFTEN = re.compile(rb"[\x02-\xff]")
_MAX_RUNS = 10  # that are listed


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of an audit: why it proves nothing, or what it proves and what was read."""

    problems: tuple[str, ...]
    text: str = ""


def audit(attempts: Iterable[Mapping[str, Path]]) -> Finding:
    """Return what the event files of a job's training tasks prove, attempt after attempt."""
    return judge([{task: EventFile(path).rest() for task, path in a.items()} for a in attempts])


def judge(attempts: Iterable[Mapping[str, Iterable[Mapping[str, Any]]]]) -> Finding:
    """Return what the events of a job's training tasks prove."""
    accounts = [
        [TaskAudit(task, events) for task, events in attempt.items()] for attempt in attempts
    ]
    run = _run(accounts)
    last = accounts[-1]
    if not any(account.is_audited for account in last):
        return Finding(_marked([_NOT_REPORTED]))
    problems = _report_problems(accounts)
    if run is None:
        return Finding(_marked(problems))
    problems += run.flaws()
    if not (problems or run.whole):
        problems = [_NO_WHOLE_EPOCH]
    lines = ([] if problems else [run.proved([account.task for account in last])]) + run.notes()
    return Finding(_marked(problems), "\n".join([*_marked(lines), _table(accounts, run)]))


@dataclass(frozen=True, slots=True)
class _Epoch:
    """What each task saw of an epoch, what is wrong if that is all of it, and if it is a part."""

    rows: Mapping[str, int]
    flaws_if_whole: str
    flaws_if_part: str


@dataclass(frozen=True, slots=True)
class _Run:
    """What was trained in all attempts, without what was lost and trained again."""

    plan: DataPlan  # with the step that the first attempt began with
    end: int  # the step that the last one came to
    epochs: Mapping[int, _Epoch]  # by number from 0

    @property
    def whole(self) -> list[_Epoch]:
        """The epochs that were trained from their first step to their last."""
        return [epoch for number, epoch in self.epochs.items() if self._is_whole(number)]

    def flaws(self) -> list[str]:
        """Return what is wrong with epochs, a line each."""
        lines = [
            f"epoch {number + 1}: {flaws}"
            for number, epoch in self.epochs.items()
            if (flaws := epoch.flaws_if_whole if self._is_whole(number) else epoch.flaws_if_part)
        ]
        return [*_first(lines, "epoch"), *self._unreported()]

    def proved(self, tasks: Sequence[str]) -> str:
        """Return what is proved where nothing is wrong."""
        count = plural(len(self.whole), "epoch")
        return (
            f"each of {plural(self.plan.examples, 'example')} was seen exactly once in "
            f"{'' if len(self.whole) == 1 else 'each of '}{count} ({self._shares(tasks)} an epoch)"
        )

    def notes(self) -> list[str]:
        """Return what is known of partial epochs with which nothing is wrong."""
        return [
            note
            for number, epoch in self.epochs.items()
            if not (self._is_whole(number) or epoch.flaws_if_part)
            for note in self._parts(number)
        ]

    def _is_whole(self, number: int) -> bool:
        steps = self.plan.steps
        return self.plan.start <= number * steps and (number + 1) * steps <= self.end

    def _unreported(self) -> Iterator[str]:
        """Describe the epochs whose steps were done without a report of examples."""
        steps = self.plan.steps
        first, last = self.plan.start // steps, (self.end - 1) // steps
        count = last - first + 1 - len(self.epochs)
        if count > 0 and self.end > self.plan.start:
            while first in self.epochs:
                first += 1
            more = f" and {plural(count - 1, 'other')}" if count > 1 else ""
            yield f"epoch {first + 1}{more}: no example is reported"

    def _parts(self, number: int) -> Iterator[str]:
        start, steps = self.plan.start, self.plan.steps
        name, none_twice = f"epoch {number + 1}", "no example was seen more than once"
        if start > number * steps:
            whose = "was begun by an earlier run, of which nothing is known"
            yield f"{name} {whose}: {none_twice} from step {start:,} on"
        if self.end < (number + 1) * steps:
            done = self.end - number * steps
            yield f"{name} ended after {done:,} of its {plural(steps, 'step')}: {none_twice}"

    def _shares(self, tasks: Sequence[str]) -> str:
        """Return how many examples each task saw in an epoch."""
        rows = [[epoch.rows.get(task, 0) for epoch in self.whole] for task in tasks]
        if len(tasks) > _MAX_NAMES:
            return f"{plural(len(tasks), 'task')}, {_between(chain.from_iterable(rows))} each"
        named = zip(tasks, rows, strict=True)
        return ", ".join(f"{task} {_between(each)}" for task, each in named)


def _run(attempts: Attempts) -> _Run | None:
    """Combine what all tasks report; None if they do not agree."""
    plan = _common_plan(attempts)
    limited = [
        (account, limit)
        for attempt, limit in zip(attempts, _limits(attempts), strict=True)
        for account in attempt
    ]
    streams = [_before(account, limit) for account, limit in limited]
    epochs = dict(_epochs(plan, streams)) if plan else {}
    for stream in streams:  # without a plan, their steps and problems are still to be read
        for _ in stream:
            pass
    end = max(min(account.step, limit) for account, limit in limited)
    return _Run(plan, end, epochs) if plan else None


def _plans(attempt: Sequence[TaskAudit]) -> set[DataPlan]:
    return {account.plan for account in attempt if account.plan}


def _common_plan(attempts: Attempts) -> DataPlan | None:
    """Return the plan of all tasks, from the first step of any; None if plans differ."""
    plans = [_plans(attempt) for attempt in attempts]
    starts = [plan.start for plan in chain(*plans)]
    data = {(plan.examples, plan.steps) for plan in chain(*plans)}
    if len(data) != 1 or max(map(len, plans)) > 1:
        return None
    return DataPlan(*data.pop(), min(starts))


def _limits(attempts: Attempts) -> list[int]:
    """Return for each attempt the step from which a later one trained again."""
    starts = [
        min((plan.start for plan in _plans(attempt)), default=sys.maxsize) for attempt in attempts
    ]
    return [min(starts[number:], default=sys.maxsize) for number in range(1, len(starts) + 1)]


def _before(account: TaskAudit, limit: int) -> Iterator[Seen]:
    """Return what a task saw that was not lost and trained again."""
    return (seen for seen in account.seen() if seen.end <= limit)


def _epochs(plan: DataPlan, streams: Sequence[Iterator[Seen]]) -> Iterator[tuple[int, _Epoch]]:
    """Go through the epochs with what all tasks saw in each; every stream is in their order."""
    by_epoch = attrgetter("epoch")
    for number, all_seen in groupby(merge(*streams, key=by_epoch), by_epoch):
        coverage = Coverage(plan.examples)
        for seen in all_seen:
            coverage.add(seen.task, seen.runs, seen.unknown)
        whole, part = (
            coverage.describe_violations(is_whole=is_whole) for is_whole in (True, False)
        )
        yield number, _Epoch(coverage.rows, whole, part)


def _report_problems(attempts: Attempts) -> list[str]:
    """Describe what the tasks did not report, or reported in a malformed event."""
    silent = [each.task for each in attempts[-1] if not (each.is_audited and each.plan)]
    problems = [f"nothing of what it read is reported by {task_names(silent)}"] if silent else []
    plans = [account.plan for account in chain(*attempts) if account.plan]
    if plans and _common_plan(attempts) is None:
        few = islice(dict.fromkeys(map(str, plans)), _MAX_PLANS)
        problems.append(f"the tasks do not go through the same data alike: {'; '.join(few)}")
    malformed = [
        f"{each.task}: {plural(each.malformed, 'event')} not understood ({each.first_malformed})"
        for each in chain(*attempts)
        if each.malformed
    ]
    return [*problems, *_first(malformed, "task")]


def _table(attempts: Attempts, run: _Run) -> str:
    """Return what each task saw and read, a row a task."""
    return table([_HEAD, *(_row(account.task, attempts, run) for account in attempts[-1])])


def _row(task: str, attempts: Attempts, run: _Run) -> list[str]:
    rows = f"{sum(epoch.rows.get(task, 0) for epoch in run.epochs.values()):,}"
    readings = [each.reading for each in chain(*attempts) if each.task == task and each.reading]
    if not readings:
        return [task, rows, "", "", "", ""]
    read = reduce(add, readings)
    share = read.share(run.plan.steps)
    return [
        task,
        rows,
        f"{read.records:,}",
        "" if read.bytes is None else f"{read.bytes:,}",
        "" if share is None else f"{100 * share:.1f} %",
        f"{read.index_bytes:,}",
    ]


def _between(numbers: Iterable[int]) -> str:
    """Return what numbers are alike, as ``719``, or between which they lie, as ``718-719``."""
    different = sorted(set(numbers))
    return "-".join(f"{number:,}" for number in dict.fromkeys([different[0], different[-1]]))


def _first(lines: Sequence[str], noun: str) -> list[str]:
    """Return the first of some lines, and how many more there are."""
    more = len(lines) - _MAX_LINES
    return [*lines[:_MAX_LINES], *([f"and {plural(more, f'more {noun}')}"] if more > 0 else [])]


def _marked(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"audit: {line}" for line in lines)


class Coverage:
    """Counts how often each example of a data set was seen in an epoch, and by which tasks."""

    def __init__(self, examples: int) -> None:
        self.rows: dict[str, int] = {}  # how many each task saw, those it saw again counted again
        self._counts = bytearray(examples)
        self._seen_by = array("H", [0]) * examples  # the number of the task that saw it last
        self._numbers: dict[str, int] = {}
        self._repeaters: set[int] = set()
        self._unknown = 0

    def add(self, task: str, runs: Iterable[tuple[int, int]], unknown: int = 0) -> None:
        """Count what a task saw."""
        number = self._numbers.setdefault(task, len(self._numbers) + 1)
        seen = unknown
        for first, count in runs:
            run = slice(first, first + count)
            before = self._counts[run]
            if before.count(0) < count:
                self._repeaters |= {number, *self._seen_by[run]}
            self._counts[run] = before.translate(_ONE_MORE)
            self._seen_by[run] = array("H", [number]) * count
            seen += count
        self.rows[task] = self.rows.get(task, 0) + seen
        self._unknown += unknown

    def describe_violations(self, *, is_whole: bool) -> str:
        """Describe the examples that were not seen exactly once; empty if there are none."""
        never = self._counts.count(0)
        often = len(self._counts) - never - self._counts.count(1)
        flaws = []
        if never and is_whole:
            subject = f"{plural(never, 'example')} {_was(never)}"
            flaws.append(f"{subject} never seen ({_positions(never, self._unseen())})")
        if often:
            subject = f"{often:,}" if flaws else plural(often, "example")
            tasks = task_names(self._tasks_with_repeats())
            flaws.append(
                f"{subject} {_was(often)} seen more than once by {tasks} "
                f"({_positions(often, self._repeated())})"
            )
        if self._unknown:
            flaws.append(
                f"{plural(self._unknown, 'row')} {_was(self._unknown)} of no known example"
            )
        return ", ".join(flaws)

    def _tasks_with_repeats(self) -> list[str]:
        """Return the tasks that saw what was seen more than once."""
        return [task for task, number in self._numbers.items() if number in self._repeaters]

    def _unseen(self) -> Iterator[str]:
        return (_span(first, last) for first, last, _ in self._runs(_NEVER))

    def _repeated(self) -> Iterator[str]:
        for first, last, times in self._runs(_OFTEN):
            yield f"{_span(first, last)}: {times} times{' or more' if times == 255 else ''}"

    def _runs(self, kind: re.Pattern[bytes]) -> Iterator[tuple[int, int, int]]:
        """Find the runs of examples that were seen equally often: first, last, how often."""
        counts = bytes(self._counts)
        match = kind.search(counts)
        while match:
            first = match.start()
            end = len(counts) - len(counts[first:].lstrip(match[0]))
            yield first, end - 1, counts[first]
            match = kind.search(counts, end)


def task_names(names: Sequence[str]) -> str:
    """Return a few names as ``a, b and c``, and of many how many they are."""
    return join_names(names) if len(names) <= _MAX_NAMES else plural(len(names), "task")


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}-{last}"


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _positions(count: int, runs: Iterator[str]) -> str:
    """Return the first runs of so many positions."""
    few = list(islice(runs, _MAX_RUNS))
    more = ["…" for _ in islice(runs, 1)]
    return f"position{'' if count == 1 else 's'} {', '.join(few + more)}"
