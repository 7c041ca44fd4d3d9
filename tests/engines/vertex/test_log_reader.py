"""A log in which entries come late and twice, read again and again."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as some

from distlaunch.engines.vertex.log_query import LogEntry
from distlaunch.engines.vertex.log_reader import Tail
from distlaunch.errors import GoogleError, RetryableError

from .servers import Clock

PAGE = 3


def entry(time: float, identity: object, *, received: float | None = None) -> LogEntry:
    received = time if received is None else received
    return LogEntry(
        *(time, min(time, received), str(time), str(identity)),
        *("chief", "INFO", f"line {identity}", {}),
    )


@dataclass
class Log:
    """Entries, each with the time from which on it can be read, and failures of reading in turn."""

    clock: Clock
    arrivals: list[tuple[float, LogEntry]]
    failures: list[Exception | None] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    reads: int = 0

    def read(self, start: float, token: str | None) -> tuple[list[LogEntry], str | None]:
        self.reads += 1
        if token is None:
            self.starts.append(start)
        failure = self.failures.pop() if self.failures else None
        if failure:
            raise failure
        here = sorted(e for at, e in self.arrivals if at <= self.clock() and e.time >= start)
        first = int(token or 0)
        more = first + PAGE < len(here)
        return here[first : first + PAGE], str(first + PAGE) if more else None


ENTRIES = some.lists(
    some.tuples(
        some.floats(0, 3_000).map(lambda t: round(t, 3)),
        some.floats(0, 150),  # seconds that it is late
        some.none() | some.floats(0, 150),  # that it comes once more
        some.booleans(),  # whether its clock is an hour ahead
    ),
    max_size=60,
)
FAILURES = some.lists(
    some.sampled_from([None, None, RetryableError("later"), GoogleError("this token is too old")]),
    max_size=40,
)


@given(ENTRIES, FAILURES, some.floats(2, 15))
def test_each_entry_is_returned_once_however_late_and_often_it_can_be_read(
    written, failures, pause
):
    clock = Clock()
    clock.time = 0.0
    arrivals = []
    for number, (time, late, again, is_ahead) in enumerate(written):
        late_entry = entry(time + 3_600 if is_ahead else time, number, received=time + late)
        arrivals.append((time + late, late_entry))
        if again is not None:
            arrivals.append((time + late + again, late_entry))
    log = Log(clock, arrivals, failures)
    tail = Tail(log.read, 0.0, clock=clock)
    got = []
    while clock.time < 3_700:
        try:
            page = tail.step(full=clock.time > 3_400)
        except GoogleError:
            page = []
        got += page
        if not tail.in_progress or not page:
            clock.sleep(pause)
    assert sorted(e.insert_id for e in got) == sorted({e.insert_id for _, e in arrivals})


def test_scans_are_short_while_much_is_written_and_full_now_and_then():
    clock = Clock()
    start = clock.time
    log = Log(clock, [(start + n, entry(start + n, n)) for n in range(900)])
    tail = Tail(log.read, 0.0, clock=clock)
    got = 0
    while clock.time < start + 900:
        got += len(tail.step())
        if not tail.in_progress:
            clock.sleep(2.0)
    steps = [later - earlier for earlier, later in pairwise(log.starts)]
    assert got > 890
    assert 5 <= sum(step < -200 for step in steps) <= 12  # the full ones
    assert log.reads < 900 / 2 * 300 / PAGE / 5  # a fifth of full scans alone


def test_each_scan_of_a_quiet_log_is_full():
    clock = Clock()
    log = Log(clock, [(clock.time, entry(clock.time, 1))])
    tail = Tail(log.read, 0.0, clock=clock)
    tail.step()
    for late in ("one", "two"):
        clock.sleep(10.0)
        log.arrivals.append((clock.time, entry(clock.time - 290, late)))
        assert [e.insert_id for e in tail.step()] == [late]
