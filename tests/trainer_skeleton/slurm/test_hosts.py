"""Slurm's lists of nodes and tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch_trainer.slurm.hosts import expand_hosts, tasks_per_node


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("login", ["login"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("gpu[07-09,12],cpu1", ["gpu07", "gpu08", "gpu09", "gpu12", "cpu1"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("127.0.0.[1-2]", ["127.0.0.1", "127.0.0.2"]),
        ("a-[1,3]-ib.cluster", ["a-1-ib.cluster", "a-3-ib.cluster"]),
    ],
)
def test_lists_of_nodes(text, hosts):
    assert expand_hosts(text) == hosts


@given(st.lists(st.integers(0, 999), min_size=1, max_size=20), st.integers(1, 4))
def test_numbers_keep_their_zeros(numbers, width):
    text = ",".join(f"{number:0{width}}" for number in numbers)
    assert expand_hosts(f"n[{text}]") == [f"n{number:0{width}}" for number in numbers]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), min_size=1, max_size=6))
def test_tasks_of_nodes(groups):
    text = ",".join(f"{tasks}(x{nodes})" if nodes > 1 else str(tasks) for tasks, nodes in groups)
    assert tasks_per_node(text) == [tasks for tasks, nodes in groups for _ in range(nodes)]
