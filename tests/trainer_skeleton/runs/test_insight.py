"""What a run writes about itself: where the time of its steps went, and for TensorBoard."""

from __future__ import annotations

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from .conftest import REGRESSION_MODEL

pytestmark = pytest.mark.slow

# Batches of worker:0 take 250 ms each: more than a step, on a busy machine too.
SLOW_DATA = """
import os, time
import numpy as np
import tensorflow as tf

def _wait(x):
    if '"type": "worker"' in os.environ["TF_CONFIG"]:
        time.sleep(0.25)
    return x

def _slow(x, y):
    return tf.ensure_shape(tf.numpy_function(_wait, [x], tf.float32), [None, 6]), y

def training():
    x = np.random.default_rng(1).normal(size=(240, 6)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True)))
    return data.batch(24).map(_slow)
"""

CALLBACKS = """
def callbacks():
    import os
    logs = os.environ["AIP_TENSORBOARD_LOG_DIR"] + "/keras"
    return [
        keras.callbacks.TensorBoard(
            logs, histogram_freq=1, update_freq="batch", profile_batch=(23, 26)
        ),
    ]
"""


@pytest.fixture(scope="module")
def finished(new_project):
    project = new_project(REGRESSION_MODEL + CALLBACKS, SLOW_DATA)
    project.local("job", "--workers=2", "--", "--epochs=3", "--global-batch-size=24")
    return project


def test_a_slow_worker_is_named_and_others_wait_for_it(finished):
    summary = finished.summary("job")
    timing = summary["timing"]
    assert timing["steps"] == 20  # of the epochs after the first
    worker, chief = timing["tasks"]["worker:0"], timing["tasks"]["chief"]
    assert worker["input"] > 0.05
    assert worker["input"] > 2 * chief["input"]
    assert chief["wait"] > 0.05
    assert timing["slowest"]["worker:0"] > 0.5
    assert summary["gradient_bytes"] == 4 * (6 * 8 + 8 + 8 + 1)
    assert summary["machine"]["cpus"] >= 1
    assert [epoch["timing"]["steps"] for epoch in summary["epochs"]] == [10, 10, 10]


def read_board(folder):
    board = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    board.Reload()
    return board


def test_tensorboard_has_scalars_of_the_training(finished):
    board = read_board(finished.folder / "job/logs/train")
    for name in ("epoch_loss", "epoch_learning_rate", "examples_per_second", "step_seconds"):
        assert [event.step for event in board.Tensors(name)] == [0, 1, 2]
    assert {"step_share/input", "step_share/exchange", "step_share/wait"} < {
        *board.Tags()["tensors"]
    }


def test_the_tensorboard_callback_writes_what_it_documents(finished):
    logs = finished.folder / "job/logs/keras"
    board = read_board(logs / "train")
    assert [event.step for event in board.Tensors("batch_loss")] == [*range(1, 31)]
    assert board.PluginTagToContent("graph_keras_model").keys() == {"keras"}
    plugins = board.PluginTagToContent("histograms")
    assert {"sequential/dense/kernel/histogram", "sequential/dense_1/bias/histogram"} <= {*plugins}
    [_] = logs.glob("train/plugins/profile/*/*.xplane.pb")  # of the chief alone
