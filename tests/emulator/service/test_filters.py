from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.emulator.service.filters import (
    Comparison,
    FilterProblem,
    demands,
    holds,
    read_filter,
)


def is_true(text: str, true: str) -> bool:
    """Whether a filter of lone words holds where some of them do."""
    return holds(read_filter(text), lambda comparison: comparison.value in true.split())


@pytest.mark.parametrize(
    ("text", "true", "result"),
    [
        ("", "", True),
        ("a OR b AND c", "a", False),
        ("a OR b AND c", "a c", True),
        ("a AND b OR c", "c", False),
        ("a AND b OR c", "a c", True),
        ("(a AND b) OR c", "c", True),
        ("a b", "a", False),
        ("a b", "a b", True),
        ("NOT a OR b", "", True),
        ("NOT a OR b", "a", False),
        ("NOT (a OR b)", "b", False),
        ("-a", "", True),
        ("NOT(a)", "a", False),
        ("a -- what follows is a comment\nAND b", "a b", True),
        ("  a\n\tb ", "a", False),
    ],
)
def test_not_binds_closest_then_or_then_and(text, true, result):
    assert is_true(text, true) is result


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('state="JOB_STATE_FAILED"', Comparison(("state",), "=", "JOB_STATE_FAILED")),
        ("labels.a-b_c=1.5", Comparison(("labels", "a-b_c"), "=", "1.5")),
        ('labels."a.b":*', Comparison(("labels", "a.b"), ":", "*")),
        ('a.b.c != "x y"', Comparison(("a", "b", "c"), "!=", "x y")),
        ('t>="2026-01-01T00:00:00Z"', Comparison(("t",), ">=", "2026-01-01T00:00:00Z")),
        ('a =~ "^x\\\\d"', Comparison(("a",), "=~", "^x\\d")),
        ('"AND"', Comparison((), ":", "AND")),
    ],
)
def test_a_comparison(text, expected):
    assert read_filter(text) == expected


@given(st.text())
def test_any_text_can_be_quoted(text):
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    assert read_filter(f'a="{quoted}"') == Comparison(("a",), "=", text)


@given(st.text(alphabet='ab"()=<>!:~- \\ANDORNOT.', max_size=30))
def test_whatever_is_written_is_read_or_refused(text):
    try:
        expression = read_filter(text)
    except FilterProblem:
        return
    assert holds(expression, lambda _: True) in (True, False)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ('a=("x" OR "y")', 'a="x" OR a="y"'),
        ("a:(x AND NOT y)", "a:x AND NOT a:y"),
        ("a:(x y OR z)", "a:x AND (a:y OR a:z)"),
    ],
)
def test_several_values_for_one_field(text, same):
    assert list(demands(read_filter(text))) == list(demands(read_filter(same)))
    for values in ("", "x", "y", "z", "x z", "x y", "y z"):
        given = values.split()
        results = [
            holds(read_filter(each), lambda comparison: comparison.value in given)  # noqa: B023
            for each in (text, same)
        ]
        assert results[0] is results[1]


def test_what_must_hold_is_found_behind_and_only():
    found = demands(read_filter("a=1 AND (b=2 c=3) AND (d=4 OR e=5) AND NOT f=6"))
    assert [each.field[0] for each in found] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(a", "expected ')', got ''"),
        ("a)", "unexpected ')'"),
        ("a=", "unexpected end"),
        ("a AND", "unexpected end"),
        ('a="x', "unexpected '\"x'"),
        ("= x", "unexpected '= x'"),
        ("a=b:c", "unexpected ':c'"),
        ("(" * 200 + "a", "nested too deeply"),
    ],
)
def test_a_text_that_is_no_filter(text, said):
    with pytest.raises(FilterProblem) as problem:
        read_filter(text)
    assert str(problem.value) == said
