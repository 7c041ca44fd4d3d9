"""The sentence of a comparison follows from its figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.local.compare.figures import Measurement, VariantFigures, with_ratios
from distlaunch.local.compare.variants import Variant
from distlaunch.local.compare.verdict import judge
from distlaunch.summary import Timing

BATCH = 64


def figures(workers: int, speed: float, timing: Timing | None = None, **choices) -> VariantFigures:
    """Return the figures of a variant with one run."""
    name = choices.pop("name", f"{workers} worker{'s' * (workers > 1)}")
    batch = choices.pop("batch", BATCH)
    cores = choices.pop("cores", None)
    variant = Variant(workers, batch, name=name, cores=cores)
    run = Measurement(1, 9.0, speed, timing, choices.pop("gradient_bytes", None), batch)
    run = replace(run, input_options=choices.pop("input_options", ["cache"]))
    return VariantFigures(variant, (run,), **choices)


def step(total: float, slowest: dict | None = None, **parts: float) -> Timing:
    """Return the timing of a step of some milliseconds and their parts."""
    names = ("input", "compute", "exchange", "wait")
    return Timing(total / 1e3, *(parts.get(n, 0.0) / 1e3 for n in names), slowest=slowest or {})


ONE = figures(1, 1000.0, step(10, compute=9.9, input=0.1))


def judged(*all_figures: VariantFigures, cores: int = 8):
    return judge(with_ratios(all_figures), cores=cores)


@pytest.mark.parametrize(
    ("timing", "cause", "remedy"),
    [
        (
            step(12, exchange=6, compute=5, wait=1),
            "because the exchange of gradients takes 50 % of a step (6 ms of 12 ms).",
            "fewer exchanges (compare them with --batch-sizes 256,1024).",
        ),
        (
            step(12, {"chief": 0.1, "worker:0": 0.9}, exchange=1, compute=5, wait=6),
            "because waiting for the slowest worker takes 50 % of a step (6 ms of 12 ms), and "
            "worker:0 is the last in 90 % of the steps.",
            "Look at what else runs on the cores of worker:0",
        ),
        (
            step(12, input=6, compute=5, exchange=1),
            "because waiting for data takes 50 % of a step",
            "--cache memory keeps parsed examples.",
        ),
        (
            step(12, compute=10, exchange=1),
            "because a worker computes 10 ms per step, and an even share would be 4.95 ms: a p",
            "A larger batch makes fewer, longer steps (compare them with --batch-sizes 256,1024).",
        ),
        (None, "(its parts were not measured)", "A larger batch makes fewer, longer steps"),
    ],
)
def test_slower_workers_have_a_cause_and_a_remedy(timing, cause, remedy):
    two = figures(2, 800.0, timing, gradient_bytes=4e6)
    verdict = judged(ONE, two)
    assert verdict.text.startswith("It does not pay here: 2 workers train 0.80 times as fast as 1")
    assert cause in verdict.text
    assert remedy in verdict.text
    assert verdict.pays is False


def test_small_gradients_are_not_worth_rounding():
    two = figures(2, 800.0, step(12, exchange=6, compute=5), gradient_bytes=1e5)
    assert "bfloat16" not in judged(ONE, two).text


def test_one_worker_on_all_cores_may_be_faster():
    two = figures(2, 1500.0, step(7, compute=5, exchange=2))
    alone = figures(1, 2000.0, step(5, compute=5), name="1 worker on 2 cores", cores=2)
    verdict = judged(ONE, two, alone, cores=2)
    start = "It does not pay here: 2 workers train 0.75 times as fast as 1 worker on 2 cores, bec"
    assert verdict.text.startswith(f"{start}ause the exchange of gradients takes 29 % of a step")
    assert verdict.text.endswith(
        "With equal cores for each worker, 2 workers train 1.50 times as fast as 1 worker "
        "(efficiency 75 %), without a network."
    )
    assert verdict.pays is False
    slow = figures(1, 1200.0, step(8, compute=8), name="1 worker on 2 cores", cores=2)
    assert judged(ONE, two, slow).text.startswith("It pays in part: 2 workers train 1.50 times")


def test_workers_that_pay():
    verdict = judged(ONE, figures(2, 1900.0, step(5, compute=4.8, exchange=0.2)))
    expected = "It pays: 2 workers train 1.90 times as fast as 1 worker (efficiency 95 %)."
    assert (verdict.text, verdict.pays) == (expected, True)
    verdict = judged(ONE, figures(4, 2000.0, step(5, compute=2, exchange=3)))
    assert verdict.text.startswith("It pays in part: 4 workers train 2.00 times as fast as 1")
    assert "(efficiency 50 %), because the exchange of gradients takes 60 %" in verdict.text


@pytest.mark.parametrize(
    ("share", "degree"), [(0.04, None), (0.06, "moderately"), (0.19, "moderately"), (0.2, "highly")]
)
def test_input_bound_by_the_limits_of_tensorflows_profiler(share, degree):
    two = figures(2, 1900.0, step(10, compute=10 * (1 - share), input=10 * share))
    text = judged(ONE, two).text
    assert (degree is None) == ("input-bound" not in text)
    assert degree is None or f"so it is {degree} input-bound: --cache memory" in text


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        (["cache"], "--cache memory keeps parsed examples."),
        ([], "machines with more CPU cores help"),
        (None, "map(…, num_parallel_calls=tf.data.AUTOTUNE) and cache() of the data set"),
    ],
)
def test_advice_on_input_is_for_the_data_of_the_run(options, remedy):
    two = figures(2, 800.0, step(10, compute=4, input=6), input_options=options)
    text = judged(ONE, two).text
    assert remedy in text
    assert options or "--cache" not in text


def test_more_workers_than_cores_show_nothing_of_machines_of_their_own():
    three = figures(3, 400.0, step(30, compute=20, exchange=10), shares_cores=True)
    clause = "3 workers share 2 cores of this machine, which cannot show how fast they are on"
    verdict = judged(ONE, three, cores=2)
    assert f"0.40 times as fast as 1 worker, because {clause}" in verdict.text
    assert verdict.pays is None
    two = figures(2, 500.0, step(30, compute=20, exchange=10))
    text = judged(ONE, two, three, cores=2).text
    assert text.startswith("It does not pay here: 2 workers train 0.50 times")
    assert text.endswith(f"{clause} machines of their own.")


def test_batches():
    text = judged(figures(2, 100.0, name="a", batch=16), figures(2, 300.0, name="b", batch=99)).text
    assert text.startswith("B is 3.00 times as fast as a. A larger batch makes fewer updates")
    text = judged(figures(2, 100.0, name="a"), figures(2, 102.0, name="b")).text
    assert text == "All variants are equally fast within 5 %."


def test_runs_that_differ_much():
    two = figures(2, 1900.0)
    fast, slow = (replace(two.runs[0], examples_per_second=speed) for speed in (3000.0, 1500.0))
    text = judged(ONE, replace(two, runs=(fast, slow))).text
    assert text.endswith(
        "The runs of 2 workers differ by a factor of 2.0: repeat it with more --rounds while "
        "nothing else runs here."
    )
    assert "repeat" not in judged(ONE, two).text


def test_failed_variants_are_left_out():
    failed = replace(figures(2, 1.0), runs=())
    assert judged(ONE, failed).text == "Nothing to compare: 1 variant measured."


PART = st.floats(0, 1)
TIMINGS = st.none() | st.builds(
    lambda parts, rest: Timing(sum(parts) + rest, *parts, slowest={"chief": 0.5}),
    st.tuples(PART, PART, PART, PART),
    PART,
)
FIGURES = st.builds(
    lambda speed, timing, size: (speed, timing, size),
    st.floats(1, 1e6),
    TIMINGS,
    st.none() | st.floats(0, 1e9),
)


@given(st.dictionaries(st.integers(1, 9), FIGURES, min_size=2), st.integers(1, 8))
def test_any_figures_have_one_verdict_that_agrees_with_them(by_workers, cores):
    all_figures = with_ratios(
        [
            figures(n, speed, timing, gradient_bytes=size, shares_cores=n > cores)
            for n, (speed, timing, size) in by_workers.items()
        ]
    )
    verdict = judge(all_figures, cores=cores)
    fewest = min(by_workers)
    own = [n for n in by_workers if n > fewest and n <= cores] or [
        n for n in by_workers if n > fewest
    ]
    best = max(by_workers[n][0] for n in own) / by_workers[fewest][0]
    assert verdict.text.startswith("It does not pay here: ") == (best < 1.05)
    assert verdict.pays in (best >= 1.05, None)
    assert "nan" not in verdict.text
    for each in all_figures:
        assert each.speedup == pytest.approx(each.speed / by_workers[fewest][0])
