"""A log that is read again and again: each entry once, late ones too.

Entries can come late and twice, so what was read lately is read again, and known by its insertId.
That costs little while a job writes little; where it writes much, the long look back is taken now
and then only, and brief ones in between.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.errors import GoogleError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlaunch.google.logs import Entry

WINDOW = 300.0  # seconds of the log that are read again for late entries

_BRIEF = 10.0  # seconds that are read again between two long looks back
_SECONDS_A_PAGE = 4.0  # between two long looks back, for each page that one takes
_LONGEST_PAUSE = 120.0  # between two long looks back
_BLOCK = 1 << 16  # ids
_MOST_BLOCKS = 64


class Seen:
    """The ids of what was seen lately, in little room: 8 bytes each, 34 MB at most.

    Parameters
    ----------
    block
        How many are kept in quick reach, and are forgotten together later.
    """

    def __init__(self, block: int = _BLOCK) -> None:
        self._block = block
        self.floor = float("-inf")  # the time up to which ids have been forgotten
        self._fresh: set[int] = set()
        self._newest = float("-inf")  # time among the fresh ones
        self._blocks: list[tuple[float, array[int]]] = []

    def has(self, key: int) -> bool:
        """Whether an id was seen and is not forgotten."""
        return key in self._fresh or any(_is_in(block, key) for _, block in self._blocks)

    def add(self, key: int, moment: float) -> None:
        """Note an id and the time of its entry."""
        self._fresh.add(key)
        self._newest = max(self._newest, moment)
        if len(self._fresh) >= self._block:
            self._blocks.append((self._newest, array("q", sorted(self._fresh))))
            self._fresh, self._newest = set(), float("-inf")
        if len(self._blocks) > _MOST_BLOCKS:
            self.forget(min(newest for newest, _ in self._blocks))

    def forget(self, moment: float) -> None:
        """Forget ids of entries of this time and before, as far as whole blocks of them are."""
        gone = [newest for newest, _ in self._blocks if newest <= moment]
        if gone:
            self._blocks = [block for block in self._blocks if block[0] > moment]
            self.floor = max(self.floor, *gone)


@dataclass(slots=True)
class _Look:
    """Reading from a time on, page by page; it may take several calls, and tries of them.

    Parameters
    ----------
    start
        The time from which on the pages are.
    reached
        The time up to which they have been read.
    """

    start: float
    is_long: bool
    began: float
    reached: float
    pages: int = 0
    fresh: int = 0
    token: str | None = None


class Tail:
    """Reads a log from a time on, each entry once.

    Parameters
    ----------
    read
        Returns a page of the entries from a time on (seconds since 1970), oldest first, and the
        token of the next one, if there is one.
    since
        Where to begin.
    clock
        Seconds.
    """

    def __init__(
        self,
        read: Callable[[float, str | None], tuple[list[Entry], str | None]],
        since: float,
        *,
        clock: Callable[[], float],
    ) -> None:
        self.quiet_look = float("-inf")
        self.whole_look = float("-inf")
        self._read = read
        self._since = since
        self._clock = clock
        self._newest = since
        self._seen = Seen()
        self._look: _Look | None = None
        self._next_long_look = clock()

    @property
    def is_amid(self) -> bool:
        """Whether there is more to read at once."""
        return self._look is not None

    def step(self, *, thorough: bool = False) -> list[Entry]:
        """Read one page and return what is new on it.

        `whole_look` is when the last look began that is whole; `quiet_look`, the last of those that
        brought nothing new.

        Parameters
        ----------
        thorough
            Whether a look that begins here has to be a long one.

        Raises
        ------
        GoogleError
            If Google refuses, or cannot be reached; the next step goes on here.
        """
        look = self._look = self._look or self._new_look(thorough=thorough)
        try:
            page, token = self._read(look.start, look.token)
        except Unavailable:
            raise
        except GoogleError:
            if look.token is None or look.reached <= look.start:
                raise
            look.start, look.token = look.reached, None  # the token has grown too old, say
            return []
        fresh = self._take(page)
        look.reached = max([look.reached, *(entry.time for entry in page[-1:])])
        look.pages += 1
        look.fresh += len(fresh)
        look.token = token
        if token is None:
            self._end(look)
        return fresh

    def _new_look(self, *, thorough: bool) -> _Look:
        now = self._clock()
        is_long = thorough or now >= self._next_long_look
        back = WINDOW if is_long else _BRIEF
        start = max(self._newest - back, self._since, self._seen.floor)
        return _Look(start, is_long, now, start)

    def _end(self, look: _Look) -> None:
        self._look = None
        if not look.is_long:
            return
        self.whole_look = look.began
        if not look.fresh:
            self.quiet_look = look.began
        pause = min(_SECONDS_A_PAGE * (look.pages - 1), _LONGEST_PAUSE)
        self._next_long_look = self._clock() + pause

    def _take(self, page: list[Entry]) -> list[Entry]:
        """Note a page's new entries and return them."""
        seen = self._seen
        fresh: dict[int, Entry] = {}
        for entry in page:
            key = hash((entry.insert_id, entry.task))
            if entry.moment > seen.floor and key not in fresh and not seen.has(key):
                fresh[key] = entry
        for key, entry in fresh.items():
            seen.add(key, entry.moment)
            self._newest = max(self._newest, entry.moment)
        seen.forget(self._newest - WINDOW)
        return list(fresh.values())


def _is_in(block: array[int], key: int) -> bool:
    at = bisect_left(block, key)
    return at < len(block) and block[at] == key
