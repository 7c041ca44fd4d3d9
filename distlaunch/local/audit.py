"""Whether each example was seen exactly once in each epoch, by the tasks' own reports.

Nothing is counted while the job runs: the reports stay in the event files and are read here
epoch after epoch, so that the counts of one epoch are all that memory has to hold.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import reduce
from heapq import merge
from itertools import chain, groupby, islice
from operator import add, attrgetter
from typing import TYPE_CHECKING, Any

from distlaunch.local.account import DataPlan, TaskAudit
from distlaunch.local.coverage import MOST_NAMES, Coverage, task_names
from distlaunch.local.event_file import EventFile
from distlaunch.text import plural, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from distlaunch.local.account import Seen

    Attempts = Sequence[Sequence[TaskAudit]]

_MOST_LINES = 5  # of a kind
_MOST_COURSES = 3
_HEAD = (
    "task",
    "examples seen",
    "records read",
    "bytes read",
    "of the data an epoch",
    "index bytes",
)
_NOTHING_TOLD = (
    "the program reports nothing of what it read; only the bundled trainer (trainer.task) does"
)
_NOTHING_WHOLE = "nothing was proved, as no epoch was trained from its first step to its last"


@dataclass(frozen=True, slots=True)
class Finding:
    """What an audit has found.

    Parameters
    ----------
    problems
        Why it is not proved that each example was seen once, a line each; none if it is.
    text
        What was proved, and what each task read.
    """

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
        return Finding(_marked([_NOTHING_TOLD]))
    problems = _misunderstandings(accounts)
    if run is None:
        return Finding(_marked(problems))
    problems += run.flaws()
    if not (problems or run.whole):
        problems = [_NOTHING_WHOLE]
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
    """What was trained in all attempts, without what was lost and trained again.

    Parameters
    ----------
    course
        The data, and the step that the first attempt began with.
    end
        The step that the last one came to.
    epochs
        What was seen, by the epochs' numbers from 0.
    """

    course: DataPlan
    end: int
    epochs: Mapping[int, _Epoch]

    @property
    def whole(self) -> list[_Epoch]:
        """The epochs that were trained from their first step to their last."""
        return [epoch for number, epoch in self.epochs.items() if self._is_whole(number)]

    def flaws(self) -> list[str]:
        """Say which epochs are not as they should be."""
        found = [
            f"epoch {number + 1}: {flaws}"
            for number, epoch in self.epochs.items()
            if (flaws := epoch.flaws_if_whole if self._is_whole(number) else epoch.flaws_if_part)
        ]
        return [*_first(found, "epoch"), *self._untold()]

    def proved(self, tasks: Sequence[str]) -> str:
        """Say what is proved where nothing is wrong."""
        count = plural(len(self.whole), "epoch")
        return (
            f"each of {plural(self.course.examples, 'example')} was seen exactly once in "
            f"{'' if len(self.whole) == 1 else 'each of '}{count} ({self._shares(tasks)} an epoch)"
        )

    def notes(self) -> list[str]:
        """Say what is known of epochs that are not whole, where nothing is wrong with them."""
        return [
            note
            for number, epoch in self.epochs.items()
            if not (self._is_whole(number) or epoch.flaws_if_part)
            for note in self._parts(number)
        ]

    def _is_whole(self, number: int) -> bool:
        steps = self.course.steps
        return self.course.start <= number * steps and (number + 1) * steps <= self.end

    def _untold(self) -> Iterator[str]:
        """Describe the epochs whose steps were done without a report of examples."""
        steps = self.course.steps
        first, last = self.course.start // steps, (self.end - 1) // steps
        count = last - first + 1 - len(self.epochs)
        if count > 0 and self.end > self.course.start:
            while first in self.epochs:
                first += 1
            more = f" and {plural(count - 1, 'other')}" if count > 1 else ""
            yield f"epoch {first + 1}{more}: no example is reported"

    def _parts(self, number: int) -> Iterator[str]:
        start, steps = self.course.start, self.course.steps
        name, none_twice = f"epoch {number + 1}", "no example was seen more than once"
        if start > number * steps:
            whose = "was begun by an earlier run, of which nothing is known"
            yield f"{name} {whose}: {none_twice} from step {start:,} on"
        if self.end < (number + 1) * steps:
            done = self.end - number * steps
            yield f"{name} ended after {done:,} of its {plural(steps, 'step')}: {none_twice}"

    def _shares(self, tasks: Sequence[str]) -> str:
        """Say how many examples each task saw in an epoch."""
        rows = [[epoch.rows.get(task, 0) for epoch in self.whole] for task in tasks]
        if len(tasks) > MOST_NAMES:
            return f"{plural(len(tasks), 'task')}, {_between(chain.from_iterable(rows))} each"
        named = zip(tasks, rows, strict=True)
        return ", ".join(f"{task} {_between(each)}" for task, each in named)


def _run(attempts: Attempts) -> _Run | None:
    """Combine what all tasks report; None if they do not agree."""
    course = _agreed(attempts)
    limited = [
        (account, limit)
        for attempt, limit in zip(attempts, _limits(attempts), strict=True)
        for account in attempt
    ]
    streams = [_counted(account, limit) for account, limit in limited]
    epochs = dict(_epochs(course, streams)) if course else {}
    for stream in streams:  # where there is no course, they have still to be heard
        for _ in stream:
            pass
    end = max(min(account.step, limit) for account, limit in limited)
    return _Run(course, end, epochs) if course else None


def _courses(attempt: Sequence[TaskAudit]) -> set[DataPlan]:
    return {account.course for account in attempt if account.course}


def _agreed(attempts: Attempts) -> DataPlan | None:
    """Return how all go through the data, from the first step of any of them."""
    courses = [_courses(attempt) for attempt in attempts]
    starts = [course.start for each in courses for course in each]
    data = {(course.examples, course.steps) for each in courses for course in each}
    if len(data) != 1 or max(map(len, courses)) > 1:
        return None
    return DataPlan(*data.pop(), min(starts))


def _limits(attempts: Attempts) -> list[int]:
    """Return for each attempt the step from which a later one trained again."""
    starts = [
        min((course.start for course in _courses(attempt)), default=sys.maxsize)
        for attempt in attempts
    ]
    return [min(starts[number:], default=sys.maxsize) for number in range(1, len(starts) + 1)]


def _counted(account: TaskAudit, limit: int) -> Iterator[Seen]:
    """Return what a task saw that was not lost and trained again."""
    return (seen for seen in account.seen() if seen.end <= limit)


def _epochs(course: DataPlan, streams: Sequence[Iterator[Seen]]) -> Iterator[tuple[int, _Epoch]]:
    """Go through the epochs with what all tasks saw in each; every stream is in their order."""
    by_epoch = attrgetter("epoch")
    for number, all_seen in groupby(merge(*streams, key=by_epoch), by_epoch):
        coverage = Coverage(course.examples)
        for seen in all_seen:
            coverage.add(seen.task, seen.runs, seen.unknown)
        whole, part = (
            coverage.describe_violations(is_whole=is_whole) for is_whole in (True, False)
        )
        yield number, _Epoch(coverage.rows, whole, part)


def _misunderstandings(attempts: Attempts) -> list[str]:
    """Describe what the tasks did not report, or reported in a malformed event."""
    silent = [each.task for each in attempts[-1] if not (each.is_audited and each.course)]
    problems = [f"nothing of what it read is reported by {task_names(silent)}"] if silent else []
    courses = [each.course for attempt in attempts for each in attempt if each.course]
    if courses and _agreed(attempts) is None:
        few = islice(dict.fromkeys(map(str, courses)), _MOST_COURSES)
        problems.append(f"the tasks do not go through the same data alike: {'; '.join(few)}")
    malformed = [
        f"{each.task}: {plural(each.malformed, 'event')} not understood ({each.first_malformed})"
        for attempt in attempts
        for each in attempt
        if each.malformed
    ]
    return [*problems, *_first(malformed, "task")]


def _table(attempts: Attempts, run: _Run) -> str:
    """Return what each task saw and read, a row a task."""
    return table([_HEAD, *(_row(account.task, attempts, run) for account in attempts[-1])])


def _row(task: str, attempts: Attempts, run: _Run) -> list[str]:
    rows = f"{sum(epoch.rows.get(task, 0) for epoch in run.epochs.values()):,}"
    found = [each.reading for attempt in attempts for each in attempt if each.task == task]
    readings = [reading for reading in found if reading]
    if not readings:
        return [task, rows, "", "", "", ""]
    read = reduce(add, readings)
    share = read.share(run.course.steps)
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
    more = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], *([f"and {plural(more, f'more {noun}')}"] if more > 0 else [])]


def _marked(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"audit: {line}" for line in lines)
