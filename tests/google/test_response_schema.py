from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.google.response_schema import ANY, JOB, find_mismatch

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*JOB, "x"]), inner),
)


@pytest.mark.parametrize(
    ("value", "shape", "problem"),
    [
        (None, str, ": expected text, got null"),
        ("text", str, ""),
        ("\ud800", str, ': expected text, got "\\ud800"'),
        (7, int, ""),
        ("7", int, ""),
        (True, int, ": expected a count, got true"),
        (-1, int, ": expected a count, got -1"),
        (10**9, int, ": expected a count, got 1000000000"),
        ("9" * 5_000, int, f': expected a count, got "{"9" * 60}"'),
        ({}, [], ": expected a list, got an object"),
        (["", "a", []], [str], "[2]: expected text, got a list"),
        ({"x": None}, {"a": str}, ""),
        ({"a": "b", "x": 5}, {ANY: str}, "x: expected text, got 5"),
        ([], {"a": str}, ": expected an object, got a list"),
        ({"a": [{"b": 5}]}, {"a": [{"b": str}]}, "a[0].b: expected text, got 5"),
    ],
)
def test_what_is_not_of_a_shape_is_named_with_its_path(value, shape, problem):
    assert find_mismatch(value, shape) == problem


@given(JSON)
def test_whatever_json_is_held_against_a_job(value):
    assert "\n" not in find_mismatch(value, JOB, "job")
