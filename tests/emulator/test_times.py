from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.emulator.times import UniqueClock, format_time, parse_time


@given(st.integers(0, 10**16))
def test_a_formatted_time_parses_back(microseconds):
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=microseconds)
    assert parse_time(format_time(moment)) == moment


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-21T17:00:00+01:00", "2026-11-21T16:00:00.000000Z"),
        ("2026-11-21T17:00:00.123456+0000", "2026-11-21T17:00:00.123456Z"),
        ("2026-11-21t17:00:00.5z", "2026-11-21T17:00:00.500000Z"),
        ("2026-11-21T17:00:00.123456789Z", "2026-11-21T17:00:00.123456Z"),
        ("2026-11-21", "2026-11-21T00:00:00.000000Z"),
    ],
)
def test_formats_of_times(text, expected):
    assert format_time(parse_time(text).astimezone(timezone.utc)) == expected


@pytest.mark.parametrize(
    "text", ["", "now", "2026-11-21T17:00", "2026-13-01T00:00:00Z", "1763744400"]
)
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match="is not a time in RFC 3339"):
        parse_time(text)


def test_a_unique_clock_returns_no_time_twice():
    clock = UniqueClock()
    times = [clock() for _ in range(1000)]
    assert times == sorted(set(times))
