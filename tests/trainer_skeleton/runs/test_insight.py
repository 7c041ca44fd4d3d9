"""What a run writes about itself: where the time of its steps went, and for TensorBoard."""

from __future__ import annotations

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

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


@pytest.fixture(scope="module")
def finished(new_project):
    project = new_project(REGRESSION_MODEL, SLOW_DATA)
    options = ("--epochs=3", "--global-batch-size=24", "--histograms", "--profile=23:26")
    options += ("--gradient-norm", "--scalars-every=8", "--prefetch=1")
    project.local("job", "--workers=2", "--", *options)
    return project


def profiled_steps(path):
    space = XSpace.FromString(path.read_bytes())
    steps = set()
    for plane in space.planes:
        for event in (event for line in plane.lines for event in line.events):
            if plane.event_metadata[event.metadata_id].name == "train":
                names = {plane.stat_metadata[s.metadata_id].name: s for s in event.stats}
                steps.add(names["step_num"].int64_value)
    return steps


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


def test_tensorboard_has_scalars_histograms_layers_and_a_profile(finished):
    logs = finished.folder / "job/logs"
    board = EventAccumulator(str(logs / "train"), size_guidance={"tensors": 0})
    board.Reload()
    for name in ("epoch_loss", "epoch_learning_rate", "examples_per_second", "step_seconds"):
        assert [event.step for event in board.Tensors(name)] == [0, 1, 2]
    assert {"step_share/input", "step_share/exchange", "step_share/wait"} < {
        *board.Tags()["tensors"]
    }
    assert "machine/cpu_cores" in board.Tags()["tensors"]
    norms = [float(tf.make_ndarray(e.tensor_proto)) for e in board.Tensors("gradient_norm")]
    records = finished.summary("job")["epochs"]
    assert norms == pytest.approx([record["gradient_norm"] for record in records])
    for name in ("loss", "mae", "learning_rate", "steps_per_second", "gradient_norm"):
        written = [event.step for event in board.Tensors(f"batch_{name}")]
        assert written == [8, 16, 24]
    plugins = board.PluginTagToContent("histograms")
    assert {"sequential/dense/kernel", "sequential/dense_1/bias"} <= plugins.keys()
    assert board.PluginTagToContent("graph_keras_model").keys() == {"keras"}
    functions = board.Graph().library.function  # of TensorFlow's graph
    operations = {node.op for function in functions for node in function.node_def}
    assert {"MatMul", "CollectiveReduceV2", "ResourceApplyAdam"} & operations >= {"MatMul"}
    [profile] = logs.glob("plugins/profile/*/*.xplane.pb")  # of the chief alone
    assert profiled_steps(profile) == {23, 24, 25, 26}
