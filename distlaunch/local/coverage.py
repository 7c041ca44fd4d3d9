"""How often each example was seen in an epoch."""

from __future__ import annotations

import re
from array import array
from itertools import islice
from typing import TYPE_CHECKING

from distlaunch.text import join_names, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MOST_EXAMPLES = 1 << 30  # 3 bytes of memory each
MOST_NAMES = 4  # of tasks that are listed

_ONE_MORE = bytes([*range(1, 256), 255])  # a count of 255 means 255 or more
_NEVER = re.compile(rb"\x00")
_OFTEN = re.compile(rb"[\x02-\xff]")
_MOST_RUNS = 10  # that are listed


class Coverage:
    """Counts how often each example of a data set was seen in an epoch, and by whom.

    Parameters
    ----------
    examples
        How many there are; they are numbered from 0.
    """

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
        found = kind.search(counts)
        while found:
            first = found.start()
            end = len(counts) - len(counts[first:].lstrip(found[0]))
            yield first, end - 1, counts[first]
            found = kind.search(counts, end)


def task_names(names: Sequence[str]) -> str:
    """Return a few names as ``a, b and c``, and of many how many they are."""
    return join_names(names) if len(names) <= MOST_NAMES else plural(len(names), "task")


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}-{last}"


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _positions(count: int, runs: Iterator[str]) -> str:
    """Return the first runs of so many positions."""
    few = list(islice(runs, _MOST_RUNS))
    more = ["…" for _ in islice(runs, 1)]
    return f"position{'' if count == 1 else 's'} {', '.join(few + more)}"
