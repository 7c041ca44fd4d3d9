"""Read a growing log repeatedly: each entry once, including late ones.

Entries can arrive late and twice, so recent entries are read again and known by their insertId.
A full scan reads the last minutes again; where it takes many pages, short scans run in between.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.errors import GoogleError, RetryableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlaunch.google.logs import LogEntry

WINDOW = 300.0  # seconds of the log that a full scan reads again for late entries

_SHORT_WINDOW = 10.0  # seconds of the log that a short scan reads again
_PAUSE_PER_PAGE = 4.0  # seconds between full scans, for each page that one takes
_MAX_PAUSE = 120.0  # seconds between full scans
_BLOCK = 1 << 16  # ids
_MAX_BLOCKS = 64


class RecentIds:
    """The ids of recent entries, 8 bytes each, 34 MB at most.

    Parameters
    ----------
    block
        How many ids are kept in a set before they are packed, and evicted together later.
    """

    def __init__(self, block: int = _BLOCK) -> None:
        self._block = block
        self.evicted_up_to = float("-inf")
        self._fresh: set[int] = set()
        self._newest = float("-inf")  # time of the fresh ids
        self._blocks: list[tuple[float, array[int]]] = []

    def has(self, key: int) -> bool:
        """Whether an id was added and is not evicted."""
        return key in self._fresh or any(_is_in(block, key) for _, block in self._blocks)

    def add(self, key: int, moment: float) -> None:
        """Add an id with the time of its entry."""
        self._fresh.add(key)
        self._newest = max(self._newest, moment)
        if len(self._fresh) >= self._block:
            self._blocks.append((self._newest, array("q", sorted(self._fresh))))
            self._fresh, self._newest = set(), float("-inf")
        if len(self._blocks) > _MAX_BLOCKS:
            self.evict(min(newest for newest, _ in self._blocks))

    def evict(self, moment: float) -> None:
        """Evict whole blocks of ids up to a time."""
        evicted = [newest for newest, _ in self._blocks if newest <= moment]
        if evicted:
            self._blocks = [block for block in self._blocks if block[0] > moment]
            self.evicted_up_to = max(self.evicted_up_to, *evicted)


@dataclass(slots=True)
class _Scan:
    """Reading from a time on, page by page, over several calls."""

    start: float
    is_full: bool
    began: float
    reached: float
    pages: int = 0
    fresh: int = 0
    token: str | None = None


class Tail:
    """Reads a log from a time on, each entry once.

    Parameters
    ----------
    read_page
        Returns a page of the entries from a time on (seconds since 1970), oldest first, and the
        token of the next page, if there is one.
    since
        The time to start at.
    clock
        Seconds.

    Attributes
    ----------
    last_full_scan, last_empty_scan
        When the last full scan began, and the last one without a new entry.
    """

    def __init__(
        self,
        read_page: Callable[[float, str | None], tuple[list[LogEntry], str | None]],
        since: float,
        *,
        clock: Callable[[], float],
    ) -> None:
        self.last_full_scan = float("-inf")
        self.last_empty_scan = float("-inf")
        self._read_page = read_page
        self._since = since
        self._clock = clock
        self._newest = since
        self._ids = RecentIds()
        self._scan: _Scan | None = None
        self._next_full_scan = clock()

    @property
    def in_progress(self) -> bool:
        """Whether a scan has more pages to read at once."""
        return self._scan is not None

    def step(self, *, full: bool = False) -> list[LogEntry]:
        """Read one page and return its new entries.

        Parameters
        ----------
        full
            Whether a scan that starts here must be a full one.

        Raises
        ------
        GoogleError
            If the page cannot be read; the next step resumes there.
        """
        scan = self._scan = self._scan or self._new_scan(full=full)
        try:
            page, token = self._read_page(scan.start, scan.token)
        except RetryableError:
            raise
        except GoogleError:
            if scan.token is None or scan.reached <= scan.start:
                raise
            scan.start, scan.token = scan.reached, None  # the token may have expired
            return []
        fresh = self._take_new(page)
        scan.reached = max([scan.reached, *(entry.time for entry in page[-1:])])
        scan.pages += 1
        scan.fresh += len(fresh)
        scan.token = token
        if token is None:
            self._finish(scan)
        return fresh

    def _new_scan(self, *, full: bool) -> _Scan:
        now = self._clock()
        is_full = full or now >= self._next_full_scan
        window = WINDOW if is_full else _SHORT_WINDOW
        start = max(self._newest - window, self._since, self._ids.evicted_up_to)
        return _Scan(start, is_full, now, start)

    def _finish(self, scan: _Scan) -> None:
        self._scan = None
        if not scan.is_full:
            return
        self.last_full_scan = scan.began
        if not scan.fresh:
            self.last_empty_scan = scan.began
        pause = min(_PAUSE_PER_PAGE * (scan.pages - 1), _MAX_PAUSE)
        self._next_full_scan = self._clock() + pause

    def _take_new(self, page: list[LogEntry]) -> list[LogEntry]:
        """Remember a page's new entries and return them."""
        ids = self._ids
        fresh: dict[int, LogEntry] = {}
        for entry in page:
            key = hash((entry.insert_id, entry.task))
            if entry.moment > ids.evicted_up_to and key not in fresh and not ids.has(key):
                fresh[key] = entry
        for key, entry in fresh.items():
            ids.add(key, entry.moment)
            self._newest = max(self._newest, entry.moment)
        ids.evict(self._newest - WINDOW)
        return list(fresh.values())


def _is_in(block: array[int], key: int) -> bool:
    index = bisect_left(block, key)
    return index < len(block) and block[index] == key
