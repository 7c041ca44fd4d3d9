from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.emulator.times import nanoseconds, stamp


@given(st.integers(0, 4 * 10**18))
def test_a_stamp_reads_back_to_its_last_digit(time):
    assert nanoseconds(stamp(time, digits=9)) == time
    assert nanoseconds(stamp(time)) == time // 1000 * 1000


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2026-11-21T17:00:00+01:00", "2026-11-21T16:00:00Z"),
        ("2026-11-21t17:00:00.5z", "2026-11-21T17:00:00.500000000Z"),
        ("2026-11-21", "2026-11-21T00:00:00Z"),
    ],
)
def test_a_time_has_several_forms(text, same):
    assert nanoseconds(text) == nanoseconds(same)


@pytest.mark.parametrize(
    "text", ["", "now", "2026-11-21T17:00", "2026-13-01T00:00:00Z", "1763744400"]
)
def test_another_text_is_no_time(text):
    with pytest.raises(ValueError, match="is no time in RFC 3339"):
        nanoseconds(text)
