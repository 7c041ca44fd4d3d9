from __future__ import annotations

import pytest

from distlaunch.ui.summary import describe

SUMMARY = {
    "name": "digits",
    "tasks": ["chief", "worker:0", "worker:1", "ps:0", "evaluator:0"],
    "replicas": 3,
    "global_batch": 96,
    "steps_per_epoch": 15,
    "examples_per_epoch": 1437,
    "validation_examples": 360,
    "epochs": [
        {
            "epoch": 1,
            "step": 15,
            "examples": 1437,
            "examples_per_second": 812.6,
            "logs": {"loss": 1.53021, "accuracy": 0.61, "val_loss": 0.6, "val_accuracy": 0.875},
        },
        {
            "epoch": 2,
            "step": 30,
            "examples": 1437,
            "examples_per_second": 9214.0,
            "logs": {"loss": 0.4, "accuracy": 0.9, "val_loss": 0.33, "val_accuracy": 0.925},
        },
    ],
    "examples_per_second": 9214.0,
    "restarts": 1,
    "resumed_from": 15,
    "model": "/jobs/one/model",
    "steps": 30,
}

SHOWN = """\
tasks               chief + 2 workers + 1 parameter server + 1 evaluator
global batch        96
steps per epoch     15
examples per epoch  1,437 (and 360 for validation)
speed               9,214 examples/s
resumed             from step 15
restarts            1
model               /jobs/one/model
epoch  step    loss  val_loss  accuracy  val_accuracy  examples/s
    1    15  1.5302    0.6000    0.6100        0.8750         813
    2    30  0.4000    0.3300    0.9000        0.9250       9,214"""


def test_whole_summary():
    assert describe(SUMMARY) == SHOWN


def test_metric_with_a_number_a_class_has_no_column():
    logs = {"loss": 1.0, "f1_score": [0.5, 0.25]}
    shown = describe({"epochs": [{"epoch": 1, "logs": logs, "examples_per_second": None}]})
    assert shown == "epoch  step    loss  examples/s\n    1        1.0000"


def test_what_is_missing_is_left_out():
    few = {"tasks": ["chief"], "validation_examples": 0, "examples_per_epoch": 8, "epochs": []}
    assert describe(few) == "tasks               chief\nexamples per epoch  8"


def test_epochs_with_different_logs():
    epochs = [
        {"epoch": 1, "step": 5, "logs": {"loss": 0.5}},
        {"epoch": 2, "logs": {"loss": float("nan"), "val_loss": 2, "lr": 0.1}},
    ]
    assert describe({"epochs": epochs}).splitlines() == [
        "epoch  step    loss  val_loss      lr  examples/s",
        "    1     5  0.5000",
        "    2           nan    2.0000  0.1000",
    ]


@pytest.mark.parametrize("garbage", [None, 3, "x", [3], [{"epoch": "x", "logs": 3}], {"a": 1}])
def test_garbage_is_no_trouble(garbage):
    described = describe(dict.fromkeys(SUMMARY, garbage))
    assert "None" not in described


def test_numbers_beyond_all_measure_are_left_out():
    epoch = {"epoch": 1, "step": 10**400, "logs": {"loss": -(10**400)}}
    assert describe({"global_batch": 10**400, "epochs": [epoch]}) == (
        "epoch  step  loss  examples/s\n    1"
    )
