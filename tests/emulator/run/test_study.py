"""What trials try, and what is made of their measurements."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.emulator.run.study import Study, final_measurement

SCALES = ("UNIT_LINEAR_SCALE", "UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE")
RATE = {"parameterId": "rate", "doubleValueSpec": {"minValue": 0.001, "maxValue": 1.0}}
LAYERS = {"parameterId": "layers", "integerValueSpec": {"minValue": "1", "maxValue": "3"}}
KIND = {"parameterId": "kind", "categoricalValueSpec": {"values": ["sgd", "adam"]}}
UNITS = {"parameterId": "units", "discreteValueSpec": {"values": [16, 32]}}


def suggestions(algorithm, *parameters, most=1000):
    study = Study({"algorithm": algorithm, "parameters": parameters}, "seed")
    found = []
    while len(found) < most and (suggested := study.suggest()) is not None:
        found.append(suggested)
    return found


def test_a_grid_is_all_combinations_the_last_parameter_first():
    assert suggestions("GRID_SEARCH", LAYERS, KIND) == [
        {"layers": layers, "kind": kind} for layers in (1, 2, 3) for kind in ("sgd", "adam")
    ]


def test_a_grid_goes_through_a_real_parameter_in_steps_of_its_scale():
    found = suggestions("GRID_SEARCH", RATE | {"scaleType": "UNIT_LOG_SCALE"})
    values = [each["rate"] for each in found]
    assert values[0] == pytest.approx(0.001)
    assert values[-1] == pytest.approx(1.0)
    ratios = [after / before for before, after in itertools.pairwise(values)]
    assert ratios == pytest.approx([ratios[0]] * len(ratios))


@given(
    st.floats(1e-6, 1e6),
    st.floats(1.0, 1e6),
    st.sampled_from(SCALES),
    st.sampled_from(["RANDOM_SEARCH", "GRID_SEARCH", "ALGORITHM_UNSPECIFIED"]),
)
def test_a_real_parameter_stays_between_its_bounds(low, factor, scale, algorithm):
    high = low * factor
    bounds = {"minValue": low, "maxValue": high}
    parameter = {"parameterId": "x", "doubleValueSpec": bounds, "scaleType": scale}
    for suggested in suggestions(algorithm, parameter, most=20):
        assert low * (1 - 1e-9) <= suggested["x"] <= high * (1 + 1e-9)


@given(st.integers(1, 1000), st.integers(0, 1000), st.sampled_from(SCALES))
def test_a_whole_parameter_is_whole_and_stays_between_its_bounds(low, more, scale):
    bounds = {"minValue": str(low), "maxValue": str(low + more)}
    parameter = {"parameterId": "x", "integerValueSpec": bounds, "scaleType": scale}
    for suggested in suggestions("RANDOM_SEARCH", parameter, most=20):
        assert isinstance(suggested["x"], int)
        assert low <= suggested["x"] <= low + more


def test_random_trials_are_the_same_for_the_same_job_and_others_for_another():
    def drawn(seed):
        study = Study({"parameters": [RATE, KIND, UNITS]}, seed)
        return [study.suggest() for _ in range(5)]

    assert drawn("a") == drawn("a")
    assert drawn("a") != drawn("b")


@pytest.mark.parametrize("algorithm", ["GRID_SEARCH", "RANDOM_SEARCH"])
def test_a_conditional_parameter_is_there_only_for_its_parent_s_values(algorithm):
    child = {
        "parameterId": "momentum",
        "discreteValueSpec": {"values": [0.5, 0.9]},
    }
    parent = KIND | {
        "conditionalParameterSpecs": [
            {"parentCategoricalValues": {"values": ["sgd"]}, "parameterSpec": child}
        ]
    }
    found = suggestions(algorithm, parent, most=30)
    assert {each["kind"] for each in found} == {"sgd", "adam"}
    assert all(("momentum" in each) == (each["kind"] == "sgd") for each in found)
    if algorithm == "GRID_SEARCH":
        assert len(found) == 3


def lines(*told):
    return "".join(json.dumps(each) + "\n" for each in told)


TOLD = lines(
    {"timestamp": 1.0, "trial": "1", "accuracy": 0.5, "global_step": "1", "checkpoint_path": ""},
    {"timestamp": 2.0, "trial": "1", "accuracy": 0.9, "global_step": "2", "checkpoint_path": ""},
    {"timestamp": 3.0, "trial": "1", "accuracy": 0.7, "global_step": "3", "checkpoint_path": ""},
)


@pytest.mark.parametrize(
    ("selection", "goal", "value", "step"),
    [
        (None, "MAXIMIZE", 0.7, "3"),
        ("LAST_MEASUREMENT", "MINIMIZE", 0.7, "3"),
        ("BEST_MEASUREMENT", "MAXIMIZE", 0.9, "2"),
        ("BEST_MEASUREMENT", "MINIMIZE", 0.5, "1"),
    ],
)
def test_the_last_measurement_counts_or_the_best(selection, goal, value, step):
    spec = {
        "metrics": [{"metricId": "accuracy", "goal": goal}],
        "measurementSelectionType": selection,
    }
    measurements, final = final_measurement(spec, TOLD)
    assert len(measurements) == 3
    assert final == {
        "stepCount": step,
        "metrics": [{"metricId": "accuracy", "value": value}],
    }


def test_what_is_no_measurement_of_the_study_is_left_out():
    spec = {"metrics": [{"metricId": "accuracy"}]}
    assert final_measurement(spec, "") == ([], None)
    assert final_measurement(spec, lines({"loss": 1.0}) + '["a"]\nno json\n{"accur') == ([], None)
    _, final = final_measurement(spec, lines({"accuracy": 0.5}) + '{"accuracy": 0.')
    assert final == {"stepCount": "0", "metrics": [{"metricId": "accuracy", "value": 0.5}]}


def test_several_metrics_of_one_step_are_one_measurement():
    spec = {"metrics": [{"metricId": "accuracy"}, {"metricId": "loss"}]}
    told = lines({"accuracy": 0.5, "global_step": 4}, {"loss": 2.0, "global_step": 4})
    measurements, final = final_measurement(spec, told)
    assert measurements == [final]
    assert [each["metricId"] for each in final["metrics"]] == ["accuracy", "loss"]
