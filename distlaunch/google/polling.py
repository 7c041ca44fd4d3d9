"""When to ask Google again: less often while nothing happens or nobody answers."""

from __future__ import annotations

from random import SystemRandom
from typing import TYPE_CHECKING

from distlaunch.ui.console import duration
from distlaunch.ui.events import Notice

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlaunch.errors import Unavailable

_RANDOM = SystemRandom()  # which leaves the program's own random numbers alone
_MOST = 60.0  # seconds between two tries
_LONGEST_ASKED = 600.0  # seconds for which Google may ask to be left alone
_TELL_AFTER = 20.0  # seconds of trouble before it is told of


class Rhythm:
    """When one kind of call is due.

    Parameters
    ----------
    clock
        Seconds.
    every
        Seconds from one call to the next, where it isn't changed.
    trouble
        Who tells of the times at which Google cannot be reached.
    """

    def __init__(self, clock: Callable[[], float], every: float, trouble: Trouble) -> None:
        self.every = every
        self.due = clock()
        self._clock = clock
        self._least = every
        self._failures = 0
        self._trouble = trouble

    @property
    def is_due(self) -> bool:
        """Whether it is time to ask."""
        return self._clock() >= self.due

    @property
    def is_failing(self) -> bool:
        """Whether the last call got no answer."""
        return self._failures > 0

    def answered(self, *, again_now: bool = False) -> list[Notice]:
        """Note an answer; `again_now` where it is only the first part."""
        self._failures = 0
        self.due = self._clock() + (0.0 if again_now else self.every)
        return self._trouble.over(self)

    def failed(self, problem: Unavailable) -> list[Notice]:
        """Note that there was none; waits are doubled each time."""
        delay = min(self._least * 2**self._failures, _MOST)
        self._failures = min(self._failures + 1, 10)
        asked = min(problem.wait, _LONGEST_ASKED)
        wait = max(delay * _RANDOM.uniform(1.0, 1.25), asked)
        self.due = self._clock() + wait
        return self._trouble.goes_on(self, problem)

    def hurry(self) -> None:
        """Ask at once."""
        if not self._failures:
            self.due = self._clock()


class Trouble:
    """Tells once that Google cannot be reached, if that lasts, and once that it can be again.

    Parameters
    ----------
    clock
        Seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._who: set[Rhythm] = set()
        self._since: float | None = None
        self._is_told = False

    def goes_on(self, who: Rhythm, problem: Unavailable) -> list[Notice]:
        """Note that a call of a kind has failed."""
        self._who.add(who)
        if self._since is None:
            self._since = self._clock()
        if self._is_told or self._clock() - self._since < _TELL_AFTER:
            return []
        self._is_told = True
        return [Notice(f"{problem}; trying on, while the job goes on by itself", "warning")]

    def over(self, who: Rhythm) -> list[Notice]:
        """Note that a call of a kind was answered."""
        self._who.discard(who)
        if self._who or self._since is None:
            return []
        lasted, was_told = self._clock() - self._since, self._is_told
        self._since, self._is_told = None, False
        return [Notice(f"Google answers again, after {duration(lasted)}")] if was_told else []
