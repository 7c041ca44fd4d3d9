from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from distlaunch.text import Table
from distlaunch.ui.terminal_width import fit

WORDS = st.lists(st.text("ab:/日é", min_size=1, max_size=30), min_size=1, max_size=30)
PLAN = "cluster    2 tasks in us-central1, project demo\nlog        training begins with the line"
COLOURED = "\x1b[31merror      \x1b[0mdistlaunch.yaml:9: project is a placeholder"
RUNS = Table(
    [
        ("RUN", "STATE", "TASKS", "SIZE", "METRICS"),
        ("0001", "SUCCEEDED", "chief", "1.2 MB", "loss 0.5302 accuracy 0.9"),
    ],
    flush_left=True,
    optional=(3, 2),
    folded=(4,),
)


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        (PLAN, 80, PLAN),
        (
            PLAN,
            40,
            "cluster    2 tasks in us-central1,\n           project demo\n"
            "log        training begins with the line",
        ),
        (
            "distlaunch: two words and\n    more of them",
            20,
            "distlaunch: two\n    words and\n    more of them",
        ),
        (
            COLOURED,
            40,
            "\x1b[31merror      \x1b[0mdistlaunch.yaml:9: project is\n           a placeholder",
        ),
        (
            "image      gs://bucket/a/long/name there",
            30,
            "image      gs://bucket/a/long/name\n           there",
        ),
    ],
)
def test_continuations_hang_below_what_is_behind_the_label(text, width, shown):
    assert fit(text, width) == shown


@given(words=WORDS, indent=st.integers(0, 8), width=st.integers(20, 100))
def test_a_wrapped_text_keeps_its_words_and_exceeds_the_width_for_a_long_word_only(
    words, indent, width
):
    text = " " * indent + " ".join(words)
    shown = fit(text, width)
    assert shown.split() == words
    for line in shown.split("\n"):
        before = cell_len(line.removesuffix(line.split()[-1]))
        assert cell_len(line) <= width or before <= max(indent, 4)


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (80, str(RUNS)),
        (
            50,
            "RUN   STATE      TASKS  METRICS\n"
            "0001  SUCCEEDED  chief  loss 0.5302 accuracy 0.9\n"
            "(SIZE: in a wider terminal)",
        ),
        (
            30,
            "RUN   STATE      METRICS\n"
            "0001  SUCCEEDED  loss 0.5302\n"
            "                 accuracy 0.9\n"
            "(TASKS, SIZE: in a wider terminal)",
        ),
    ],
)
def test_a_narrow_terminal_leaves_columns_out_and_then_folds(width, shown):
    assert fit(RUNS, width) == shown


@given(st.data())
def test_a_table_never_exceeds_the_width(data):
    columns = data.draw(st.integers(1, 6))
    cells = st.text("ab 日[]/", max_size=20)
    row = st.lists(cells, min_size=columns, max_size=columns)
    rows = [[f"C{n}" for n in range(columns)], *data.draw(st.lists(row, max_size=5))]
    optional = data.draw(st.permutations(range(1, columns)))
    width = data.draw(st.integers(20, 80))
    shown = fit(Table(rows, optional=optional, folded=(0,)), width).split("\n")
    note = shown.pop() if re.search(r"\(C", shown[-1]) else ""
    assert all(cell_len(line) <= width for line in shown)
    heads = re.findall(r"C\d", shown[0] + note)
    assert sorted(heads) == rows[0]
