"""The formulas of `distlaunch forecast`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.price.step_time import (
    Exchange,
    Step,
    expected_maximum,
    fit_exchange,
    fit_line,
    overlapped,
    pareto_front,
)

LATENCIES, SPEEDS = st.floats(1e-5, 1e-2), st.floats(1e8, 1e11)
TIMES, OVERLAPS = st.floats(1e-3, 10), st.floats(1, 10)


@given(LATENCIES, SPEEDS)
def test_an_exchange_is_recovered_from_its_times(latency, speed):
    exchange = Exchange(latency, 1 / speed)
    points = [(n, size, exchange.ring(n, size)) for n, size in ((2, 5e4), (2, 1e9), (4, 1e8))]
    fitted = fit_exchange(points)
    assert fitted.latency == pytest.approx(latency, rel=1e-3)
    assert fitted.per_byte == pytest.approx(1 / speed, rel=1e-3)


@given(st.floats(0, 1), st.floats(1e-4, 1))
def test_compute_by_batch_is_recovered(intercept, slope):
    fitted = fit_line([(batch, intercept + slope * batch) for batch in (16, 32, 128)])
    assert fitted == pytest.approx((intercept, slope), rel=1e-4, abs=1e-6)


def test_fitted_parameters_are_never_negative():
    assert fit_line([(1, 2.0), (2, 1.0)]) == (pytest.approx(1.2), 0)  # relative errors count
    assert fit_exchange([(2, 1e6, 1.0), (2, 1e9, 0.5)]).per_byte == 0


@given(TIMES, TIMES, OVERLAPS)
def test_overlap_is_between_the_sum_and_the_longer_one(compute, exchange, overlap):
    seconds = overlapped(compute, exchange, overlap)
    assert max(compute, exchange) <= seconds * (1 + 1e-9)
    assert seconds <= (compute + exchange) * (1 + 1e-9)


EXCHANGES = st.builds(Exchange, LATENCIES, SPEEDS.map(lambda speed: 1 / speed))


@given(st.builds(Step, TIMES, EXCHANGES, TIMES, OVERLAPS), st.integers(1, 50), st.floats(1, 1e9))
def test_a_step_grows_with_tasks_and_bytes(step, tasks, size):
    seconds = step.seconds(tasks, size)
    assert step.seconds(1, size) == step.compute
    assert seconds <= step.seconds(tasks + 1, size) * (1 + 1e-9)
    assert seconds <= step.seconds(tasks, 2 * size) * (1 + 1e-9)


def test_ring_and_reduction_server_send_the_documented_bytes():
    exchange = Exchange(0, 1e-9)
    assert exchange.ring(4, 1e9) == pytest.approx(1.5)  # 2 (n - 1) / n
    assert exchange.reduction_server(4, 1e9) == pytest.approx(1)
    assert exchange.reduction_server(1, 1e9) == 0


def test_the_slowest_of_several():
    # The exact values for 2, 3 and 4 are 0.564, 0.846 and 1.029.
    assert [expected_maximum(n) for n in (1, 2, 3, 4)] == pytest.approx(
        [0, 0.564, 0.846, 1.029], rel=0.05
    )


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=12))
def test_the_front_has_what_nothing_beats(points):
    front = pareto_front((point, *point) for point in points)
    for point in points:
        beaten = any(a <= point[0] and b <= point[1] and (a, b) != point for a, b in points)
        assert (point in front) == (not beaten)
    assert len(front) == len(set(front))
