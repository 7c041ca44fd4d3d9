from __future__ import annotations

import itertools
import json

import pytest

from distlaunch.emulator.run.trials import read_measurements, suggest_parameters

RATE = {"parameterId": "rate", "doubleValueSpec": {"minValue": 0.001, "maxValue": 1.0}}
LAYERS = {"parameterId": "layers", "integerValueSpec": {"minValue": "1", "maxValue": "3"}}
KIND = {"parameterId": "kind", "categoricalValueSpec": {"values": ["sgd", "adam"]}}
UNITS = {"parameterId": "units", "discreteValueSpec": {"values": [16, 32]}}


def suggestions(algorithm, *parameters, limit=100, seed="seed"):
    spec = {"algorithm": algorithm, "parameters": parameters}
    return list(itertools.islice(suggest_parameters(spec, seed), limit))


def test_a_grid_has_all_combinations():
    assert suggestions("GRID_SEARCH", LAYERS, KIND) == [
        {"layers": layers, "kind": kind} for layers in (1, 2, 3) for kind in ("sgd", "adam")
    ]


@pytest.mark.parametrize(
    ("scale", "second"),
    [(None, 0.112), ("UNIT_LOG_SCALE", 0.00215), ("UNIT_REVERSE_LOG_SCALE", 0.537)],
)
def test_a_grid_follows_the_scale(scale, second):
    values = [each["rate"] for each in suggestions("GRID_SEARCH", RATE | {"scaleType": scale})]
    assert len(values) == 10
    assert (values[0], values[-1]) == pytest.approx((0.001, 1.0))
    assert values[1] == pytest.approx(second, rel=0.01)


def test_random_parameters_are_in_range_and_the_same_for_the_same_seed():
    parameters = (RATE | {"scaleType": "UNIT_LOG_SCALE"}, LAYERS, KIND, UNITS)
    drawn = suggestions(None, *parameters)
    assert all(0.001 <= each["rate"] <= 1.0 for each in drawn)
    assert {each["layers"] for each in drawn} == {1, 2, 3}
    assert {each["kind"] for each in drawn} == {"sgd", "adam"}
    assert {each["units"] for each in drawn} == {16, 32}
    assert suggestions("RANDOM_SEARCH", *parameters) == drawn
    assert suggestions("RANDOM_SEARCH", *parameters, seed="other") != drawn


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


ACCURACIES = lines(
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
def test_the_last_or_the_best_measurement_is_the_final_one(selection, goal, value, step):
    spec = {
        "metrics": [{"metricId": "accuracy", "goal": goal}],
        "measurementSelectionType": selection,
    }
    measurements, final = read_measurements(spec, ACCURACIES)
    assert len(measurements) == 3
    assert final == {"stepCount": step, "metrics": [{"metricId": "accuracy", "value": value}]}


def test_metrics_of_one_step_are_one_measurement_and_other_lines_are_ignored():
    spec = {"metrics": [{"metricId": "accuracy"}, {"metricId": "loss"}]}
    other = '["a"]\nno json\n{"accur'
    assert read_measurements(spec, lines({"error": 1.0}) + other) == ([], None)
    text = lines({"accuracy": 0.5, "global_step": 4}, {"loss": 2.0, "global_step": 4}) + other
    measurements, final = read_measurements(spec, text)
    assert measurements == [final]
    assert final == {
        "stepCount": "4",
        "metrics": [{"metricId": "accuracy", "value": 0.5}, {"metricId": "loss", "value": 2.0}],
    }
