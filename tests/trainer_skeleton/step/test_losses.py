"""Losses of all kinds give the weights of one worker on replicas, or are warned of by line."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NONE = ""
FEW = {
    "function_in_layer": NONE,
    "sum_behind_synchronized_normalization": NONE,
    "dice_with_weights_and_accumulation": NONE,
    "circle": NONE,
    "mean_of_targets_that_are_not_missing": NONE,
    "largest_errors_of_more_rows_than_are_made_up": NONE,
    "two_outputs_of_which_one_is_masked": NONE,
    "layer_over_rows": r"layer mixes\w* of Mixes \(loss_cases.py, line \d+\) computes with several",
    "step_with_sum": NONE,
}
CASES = FEW | {
    "l2_loss": NONE,
    "mean_of_sums": NONE,
    "sum_run_eagerly": NONE,
    "vector": NONE,
    "mean_and_regularizers": NONE,
    "sum_with_another_term": r"layer adds\w* \(loss_cases.py, line \d+\) is neither",
    "masked_mean_that_is_added": r"add_loss\(\) of the layer adds\w* .* is neither",
    "sum_in_xla": NONE,
    "dice": NONE,
    "tversky_in_xla": NONE,
    "tversky_scaled": NONE,
    "circle_unreduced": NONE,
    "pairs": NONE,
    "mean_by_function": NONE,
    "mean_by_function_with_weights": NONE,
    "step_with_mean": NONE,
    "step_with_pairs": r"Step.train_step\(\) \(loss_cases.py, line \d+\) computes neither",
    "step_that_compares_rows_in_the_compiled_loss": NONE,
    "step_that_clips": r"Step.train_step\(\) .* let the optimizer clip",
    "compute_loss_with_mean": NONE,
    "compute_loss_of_sums": NONE,
    "compute_loss_with_sum": r"OwnLoss.compute_loss\(\) \(loss_cases.py, .* computes neither",
}
PICKY = "rows_of_a_layer_that_refuses_made_up_numbers"
CASES = CASES if os.environ.get("DISTLAUNCH_TEST_LAWS") else FEW


@pytest.fixture(scope="module")
def results(tensorflow):
    """What the program prints."""
    env = {"TF_CPP_MIN_LOG_LEVEL": "2"}
    result = tensorflow.run("loss_cases", "3", *CASES, PICKY, cwd=HERE, env=env)
    assert result.code == 0, result.text
    return json.loads(result.out.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_replicas_with_uneven_rows_train_as_one_worker_or_a_line_is_named(results, name):
    notes, expected = results[name]["notes"], CASES[name]
    if not expected:
        assert notes == []
        assert results[name]["difference"] < 1e-9
        return
    (note,) = notes
    assert results[name]["difference"] > 1e-7  # the warning is true
    assert "the weights depend on the number of replicas" in note
    assert re.search(expected, note), note


@pytest.mark.slow
def test_numbers_for_each_row_are_summed_where_nothing_can_be_computed_before(results):
    (note,) = results[PICKY]["notes"]
    assert "all are positive (loss_cases.py, line" in note
    assert note.endswith("divide a sum by their number")
    assert results[PICKY]["difference"] < 1e-9
