"""Where the time of steps goes, computed from the clocks of all tasks."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from distlaunch_trainer.step.step_timing import (
    StepTimer,
    table_of_steps,
    task_timing,
)

PARTS = ("input", "compute", "exchange", "wait")
SECONDS = st.floats(1e-6, 10)


def timing_of(*tasks):
    """Return the timing of tasks, each by the total, input and exchange of its steps."""
    seconds = np.array(tasks, float)
    names = ["chief", *(f"worker:{number}" for number in range(len(tasks) - 1))]
    return task_timing(seconds.shape[2], table_of_steps(seconds), names)


def test_a_task_alone_has_no_exchange():
    parts = {"total": 2.0, "input": 1.0, "compute": 1.0, "exchange": 0.0, "wait": 0.0}
    assert timing_of([[1, 3], [0.5, 1.5], [0, 0]]) == {
        **parts,
        "steps": 2,
        "slowest": {},
        "tasks": {"chief": parts},
    }


def test_the_task_that_comes_last_waits_for_nobody():
    """Both all-reduces end at the same time: the shorter one began later."""
    fast, slow = [[4, 4], [0, 0], [3, 2]], [[4, 4], [1, 1], [1, 2]]
    timing = timing_of(fast, slow)
    assert timing["tasks"]["chief"]["wait"] == 1.0
    assert timing["tasks"]["worker:0"]["wait"] == 0.0
    assert timing["exchange"] == 1.5
    assert timing["slowest"] == {"chief": 0.5, "worker:0": 0.5}  # the first one of a tie


@given(
    st.integers(1, 4).flatmap(
        lambda tasks: st.lists(
            st.lists(st.tuples(SECONDS, SECONDS, SECONDS), min_size=tasks, max_size=tasks),
            min_size=1,
            max_size=5,
        )
    )
)
def test_the_parts_are_the_whole(steps):
    tasks = []
    for number in range(len(steps[0])):
        waited, computed, exchanged = np.array([step[number] for step in steps]).T
        tasks.append([waited + computed + exchanged, waited, exchanged])
    timing = timing_of(*tasks)
    for each in (timing, *timing["tasks"].values()):
        assert sum(each[part] for part in PARTS) == pytest.approx(each["total"], abs=1e-6)
        assert min(each[part] for part in PARTS) >= 0
    assert sum(timing["slowest"].values()) == pytest.approx(float(len(tasks) > 1), abs=5e-3)


def test_the_clock_is_read_in_a_compiled_loop():
    timer, run = StepTimer(), tf.distribute.get_strategy().run

    def slow(seconds, value):
        return tf.numpy_function(lambda v: (time.sleep(seconds), v)[1], [value], tf.float32)

    def exchange(values):
        return [slow(0.02, value) for value in values]

    def train(batch):
        return tuple(
            timer.time_exchange([slow(0.01, batch)], lambda: exchange([slow(0.01, batch)]))
        )

    @tf.function(autograph=False)
    def steps():
        first = timer.start(tf.constant(3))

        def step(number, _):
            _, loss = timer.time_step(
                first + number, lambda: slow(0.04, tf.constant(1.0)), train, run
            )
            return number + 1, tf.ensure_shape(loss, [])

        return tf.while_loop(lambda n, _: n < 3, step, (0, tf.constant(0.0)))

    for _ in range(2):
        steps()
        total, waited, exchanged = timer.take()
        assert len(total) == 3
        assert (waited >= 0.04).all()
        assert (exchanged >= 0.02).all()
        assert (total >= 0.07).all()
        assert (total >= waited + exchanged).all()


def test_a_step_ends_with_its_updates_of_variables():
    timer, weight, run = StepTimer(), tf.Variable(0.0), tf.distribute.get_strategy().run

    def train(batch):
        slow = tf.numpy_function(lambda value: (time.sleep(0.05), value)[1], [batch], tf.float32)
        weight.assign_add(tf.ensure_shape(slow, []))
        return (batch * 2,)  # a loss that is known before the update

    @tf.function(autograph=False)
    def step():
        return timer.time_step(timer.start(tf.constant(1)), lambda: tf.constant(1.0), train, run)

    step()
    assert timer.take()[0].min() >= 0.05
    assert weight.numpy() == 1
