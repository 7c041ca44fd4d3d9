from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.checks.request_view import JobRequest, job_request
from distlaunch.checks.tuning import problems
from distlaunch.job.model import (
    ChoiceParameter,
    Cluster,
    Image,
    Job,
    Machine,
    Pool,
    RangeParameter,
    Tuning,
)
from distlaunch.submit.plan import LaunchRequest

SCALES = {
    None: "SCALE_TYPE_UNSPECIFIED",
    "linear": "UNIT_LINEAR_SCALE",
    "log": "UNIT_LOG_SCALE",
    "reverse_log": "UNIT_REVERSE_LOG_SCALE",
}


def parameter(kind, scale=None, name="rate", below=(), **spec):
    made = {"parameterId": name, f"{kind}ValueSpec": spec, "scaleType": SCALES[scale]}
    return made | {"conditionalParameterSpecs": [{"parameterSpec": each} for each in below]}


def span(least, most, scale=None, kind="double", **rest):
    return parameter(kind, scale, minValue=least, maxValue=most, **rest)


def values(*them, scale=None, kind="discrete", **rest):
    return parameter(kind, scale, values=list(them), **rest)


def search(*parameters, trials=4, at_once=2, algorithm=None, metrics=("loss",), **rest):
    study = {"metrics": [{"metricId": each} for each in metrics], "parameters": list(parameters)}
    if algorithm:
        study["algorithm"] = algorithm
    return {"studySpec": study, "maxTrialCount": trials, "parallelTrialCount": at_once, **rest}


def told(said):
    return list(problems(JobRequest("digits", "mine", "us-central1", (), search=said)))


PLAIN = span(0.1, 1)
GOOD = {
    "a span": search(PLAIN),
    "a span of one number": search(span(2, 2, kind="integer")),
    "a span from below 0": search(span(-1, 1, "linear")),
    "a logarithmic span": search(span(1e-9, 1, "log")),
    "numbers": search(values(0.0, 1.0, 1.5)),
    "the most numbers": search(values(*map(float, range(1000)))),
    "names": search(values("a", "b", kind="categorical")),
    "all trials at once": search(PLAIN, trials=4, at_once=4),
    "a grid": search(
        span(1, 9, kind="integer"),
        values(0.1, 0.2, name="b"),
        values("x", kind="categorical", name="c"),
        algorithm="GRID_SEARCH",
    ),
    "two metrics": search(PLAIN, metrics=("loss", "acc")),
    "one that hangs on another": search(
        values("a", "b", kind="categorical", below=[span(1, 2, "log", name="b")])
    ),
    "some failures": search(PLAIN, maxFailedTrialCount=3),
}
BAD = {
    "more at once than there are": (
        search(PLAIN, trials=4, at_once=9),
        ("parallel_trials", "9 trials are to run at once, and there are 4", "trials: 4 or less"),
    ),
    "none": (search(PLAIN, trials=0, at_once=1), ("trials", "this has 0", "trials: 20")),
    "none at once": (
        search(PLAIN, at_once=0),
        ("parallel_trials", "0 are to", "parallel_trials: 1"),
    ),
    "no metric": (search(PLAIN, metrics=()), ("metric", "no metric", "say one")),
    "a metric of two words": (
        search(PLAIN, metrics=("val loss",)),
        ("metric", "without spaces, and not 'val loss'", "write val_loss"),
    ),
    "a metric without a name": (search(PLAIN, metrics=("",)), ("metric", "not ''", "a name")),
    "no parameter": (search(), ("parameters", "no parameter", "say one")),
    "a parameter of two words": (
        search(span(1, 2, name="learning rate")),
        ("parameters", "'learning rate'", "learning_rate"),
    ),
    "a parameter twice": (
        search(PLAIN, PLAIN),
        ("parameters", "'rate' is there 2 times", "once"),
    ),
    "nothing of a parameter": (
        search({"parameterId": "rate"}),
        ("parameters.rate", "nothing is said", "min and max"),
    ),
    "a span that goes back": (
        search(span(3, 1, kind="integer")),
        ("parameters.rate", "from 3 to 1", "at most the max"),
    ),
    "a span that is no number": (
        search(span("NaN", 1)),
        ("parameters.rate", "from nan to 1", "at most the max"),
    ),
    "a logarithm of 0": (
        search(span(0, 1, "log")),
        ("parameters.rate.scale", "begins with 0", "above 0"),
    ),
    "a logarithm of a span whose min is left out": (
        search(parameter("double", "log", maxValue=1)),
        ("parameters.rate.scale", "begins with 0", "scale: linear"),
    ),
    "a reverse logarithm of less": (
        search(span(-2, 1, "reverse_log", kind="integer")),
        ("parameters.rate.scale", "begins with -2", "scale: linear"),
    ),
    "logarithms of numbers": (
        search(values(0.0, 1.0, scale="log")),
        ("parameters.rate.scale", "begins with 0", "above 0 alone"),
    ),
    "a logarithm below another": (
        search(values("a", kind="categorical", below=[span(0, 1, "log", name="b")])),
        ("parameters.b.scale", "'b' begins with 0", "above 0"),
    ),
    "no numbers": (search(values()), ("parameters.rate.values", "0 values", "list some")),
    "many numbers": (
        search(values(*map(float, range(1001)))),
        ("parameters.rate.values", "1001 values", "fewer"),
    ),
    "numbers in disorder": (
        search(values(1.0, 3.0, 2.0)),
        ("parameters.rate.values", "greater than the one before", "in order"),
    ),
    "a number twice": (
        search(values(1.0, 1.0)),
        ("parameters.rate.values", "greater than the one before", "each once"),
    ),
    "no names": (
        search(values(kind="categorical")),
        ("parameters.rate.values", "no values", "list some"),
    ),
    "a scale of names": (
        search(values("a", kind="categorical", scale="log")),
        ("parameters.rate.scale", "no scale", "type: double"),
    ),
    "a grid over a span": (
        search(PLAIN, algorithm="GRID_SEARCH"),
        ("algorithm", "as rate", "algorithm: random"),
    ),
}


def test_a_job_that_is_not_tuned_has_nothing_to_be_said_of():
    assert told(None) == []


@pytest.mark.parametrize("said", GOOD.values(), ids=GOOD)
def test_a_search_that_can_be_passes(said):
    assert told(said) == []


@pytest.mark.parametrize(("said", "wanted"), BAD.values(), ids=BAD)
def test_a_search_that_cannot_be_is_told_with_what_to_write(said, wanted):
    where, what, remedy = wanted
    (problem,) = told(said)
    assert (problem.code, problem.severity) == ("tuning-impossible", "error")
    assert problem.where == f"tuning.{where}"
    assert what in problem.what
    assert remedy in problem.remedy


def test_less_than_no_failures_are_told_where_they_are_said():
    (problem,) = told(search(PLAIN, maxFailedTrialCount=-1))
    assert (problem.code, problem.where) == ("tuning-impossible", "vertex.maxFailedTrialCount")


def test_all_is_told_at_once():
    said = search(span(0, 1, "log"), trials=2, at_once=3, algorithm="GRID_SEARCH")
    assert [each.where for each in told(said)] == [
        "tuning.parallel_trials",
        "tuning.parameters.rate.scale",
        "tuning.algorithm",
    ]


JOB = Job(
    name="digits",
    cluster=Cluster(Pool(Machine("n1-standard-4"))),
    image=Image(uri="host/path:1"),
)
NUMBERS = st.floats(1e-6, 1e6) | st.integers(1, 10**6).map(float)
CHOICES = st.lists(NUMBERS.map(lambda each: repr(round(each, 6) or 1.0)), min_size=1, unique=True)
SPANS = st.builds(
    lambda ends, scale: RangeParameter(min(ends), max(ends) + 1, scale=scale),
    st.tuples(NUMBERS, NUMBERS),
    st.sampled_from(["linear", "log", "reverse_log"]),
)
PARAMETERS = st.dictionaries(
    st.from_regex(r"[a-z][a-z-]*", fullmatch=True),
    SPANS
    | CHOICES.map(lambda said: ChoiceParameter(tuple(said)))
    | CHOICES.map(lambda said: ChoiceParameter(tuple(said), is_numeric=True, scale="log")),
    min_size=1,
)


@given(PARAMETERS, st.integers(1, 100), st.data())
def test_whatever_a_job_file_says_of_numbers_above_0_can_be(parameters, trials, data):
    at_once = data.draw(st.integers(1, trials))
    tuning = Tuning("loss", "minimize", parameters, trials, at_once, "random")
    assert list(problems(job_request(LaunchRequest(Path(), replace(JOB, tuning=tuning))))) == []
