"""Counts, lists of names, durations and tables as text."""

import pytest

from distlaunch.text import duration, join_names, plural, table


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1_200, "1,200 rows")]
)
def test_plural(count, text):
    assert plural(count, "row") == text


def test_join_names():
    assert join_names(["a"]) == "a"
    assert join_names(["a", "b", "c"]) == "a, b and c"
    assert join_names([1, 2], "or") == "1 or 2"


def test_table_is_flush_left():
    assert table([["a", "bb"], ["ccc", ""]], flush_left=True) == "a    bb\nccc"


def test_table_is_flush_right():
    assert table([["a", "bb"], ["ccc", ""]]) == "  a  bb\nccc"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0 s"),
        (0, "0.0 s"),
        (1.84, "1.8 s"),
        (9.99, "10.0 s"),
        (10, "10 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (123.4, "2 min 3 s"),
        (3_600, "1 h"),
        (3_605, "1 h"),
        (3_660, "1 h 1 min"),
        (86_399, "23 h 59 min"),
        (180_000, "2 d 2 h"),
    ],
)
def test_duration(seconds, text):
    assert duration(seconds) == text
