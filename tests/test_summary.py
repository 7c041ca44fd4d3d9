from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from json_schemas import load_checked

from distlaunch.summary import Summary, Timing, describe

LOGS = {"loss": 1.53021, "accuracy": 0.61, "val_loss": 0.6, "val_accuracy": 0.875}
SUMMARY = {
    "name": "digits",
    "tasks": ["chief", "worker:0", "worker:1", "ps:0", "evaluator:0"],
    "global_batch": 96,
    "steps_per_epoch": 15,
    "examples_per_epoch": 1437,
    "validation_examples": 360,
    "epochs": [
        {"epoch": 1, "step": 15, "examples_per_second": 812.6, "logs": LOGS},
        {"epoch": 2, "step": 30, "examples_per_second": 9214.0, "logs": LOGS | {"loss": 0.4}},
    ],
    "examples_per_second": 9214.0,
    "timing": {"total": 0.01, "compute": 0.0058, "exchange": 0.004, "wait": 0.0, "input": 0.0002},
    "restarts": 1,
    "resumed_from": 15,
    "model": "/jobs/one/model",
}
SHOWN = """\
tasks               chief + 2 workers + 1 parameter server + 1 evaluator
global batch        96
steps per epoch     15
examples per epoch  1,437 (and 360 for validation)
speed               9,214 examples/s
step time           10 ms: compute 58 %, exchange 40 %, input 2 %
resumed             from step 15
restarts            1
model               /jobs/one/model
epoch  step    loss  val_loss  accuracy  val_accuracy  examples/s
    1    15  1.5302    0.6000    0.6100        0.8750         813
    2    30  0.4000    0.6000    0.6100        0.8750       9,214"""


def shown(content) -> str:
    return "\n".join(map(str, describe(content)))


def test_whole_summary():
    assert shown(SUMMARY) == SHOWN
    few = {"tasks": ["chief"], "validation_examples": 0, "examples_per_epoch": 8, "epochs": []}
    assert shown(few) == "tasks               chief\nexamples per epoch  8"


def test_the_best_epoch_of_a_metric_by_its_name():
    logs = [{"val_loss": math.nan, "lr": 0.1}, {"val_loss": 0.0, "accuracy": 0.9}]
    logs += [{"val_loss": 0.5, "accuracy": 0.8}]
    epochs = [{"epoch": number, "logs": each} for number, each in enumerate(logs, start=1)]
    summary = Summary.parse({"epochs": epochs})
    assert summary.best("val_loss") is summary.best("accuracy") is summary.epochs[1]
    assert summary.best("lr") is summary.best("recall") is None


def test_epochs_with_different_logs():
    """A metric with a number per class has no column."""
    epochs = [
        {"epoch": 1, "step": 5, "logs": {"loss": 0.5, "f1_score": [0.5, 0.25]}},
        {"epoch": 2, "logs": {"loss": float("nan"), "val_loss": 2, "lr": 0.1}},
        {"epoch": 3, "step": 10**400, "logs": {"loss": -(10**400)}},
    ]
    assert shown({"global_batch": 10**400, "epochs": epochs}).splitlines() == [
        "epoch  step    loss  val_loss      lr  examples/s",
        "    1     5  0.5000",
        "    2           nan    2.0000  0.1000",
        "    3",
    ]


@pytest.mark.parametrize("garbage", [None, 3, "x", [3], [{"epoch": "x", "logs": 3}], {"a": 1}])
def test_garbage_is_left_out(garbage):
    assert "None" not in shown(dict.fromkeys(SUMMARY, garbage))


def test_the_golden_file_of_the_trainer_is_read_whole():
    text = (Path(__file__).parent / "golden" / "summary.json").read_text()
    summary = Summary.parse(load_checked("summary", text))
    first, last = summary.epochs
    shares = {"chief": 1.0, "worker:0": 0.0}
    assert first.timing == Timing(0.5, 0.0625, 0.25, 0.125, 0.0625, {})
    assert summary.timing == replace(first.timing, slowest=shares)
    assert summary.task_timings["chief"].wait == 0.0
    assert (first.number, last.step, last.examples_per_second) == (1, 46, 718.5)
    assert (first.logs, last.logs) == ({"loss": 0.5, "val_loss": 0.75}, {})
    assert (summary.metrics, summary.tasks) == ({}, ("chief", "worker:0"))
    assert summary.data["training"]["files"][0]["examples"] == 1437
    figures = (summary.global_batch, summary.steps, summary.steps_per_epoch, summary.restarts)
    assert figures == (64, 46, 23, 0)
    examples = (summary.examples_per_epoch, summary.validation_examples)
    assert examples == (1437, 360)
    assert (summary.examples_per_second, summary.gradient_bytes) == (718.5, 51_240)
    assert (summary.machine["cpus"], summary.resumed_from) == (4, None)
