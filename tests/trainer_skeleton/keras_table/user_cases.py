"""Rows that no rule makes: base classes in use, wrappers, callbacks that need something."""

from __future__ import annotations

import functools
import json
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf
from cases import (
    LABELS,
    ONE_HOT,
    Arrays,
    X,
    dense,
    fit,
    logs_of,
    run_callbacks,
    sgd,
    trained,
    weights_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

ops = keras.ops


class PerRow(keras.losses.Loss):
    """Returns a number for each row."""

    def call(self, y, predicted):
        return ops.mean(ops.abs(y - predicted) ** 1.5, -1)


class Count(keras.metrics.Metric):
    """Counts rows whose error is small."""

    def __init__(self, name="count", **options):
        super().__init__(name=name, **options)
        self.total = self.add_weight(name="total", initializer="zeros")

    def update_state(self, y, predicted, sample_weight=None):
        is_near = ops.all(ops.abs(y - predicted) < 0.6, -1)
        self.total.assign_add(ops.sum(ops.cast(is_near, self.dtype)))

    def result(self):
        return ops.copy(self.total)


class Momentum(keras.optimizers.Optimizer):
    """Keeps a variable for each weight."""

    def build(self, variables):
        if not self.built:
            super().build(variables)
            self.moments = self.add_optimizer_variables(variables, "moment")

    def update_step(self, gradient, variable, learning_rate):
        moment = self.moments[self._get_variable_index(variable)]
        self.assign(moment, 0.9 * moment + gradient)
        self.assign_sub(variable, ops.cast(learning_rate, variable.dtype) * moment)


class Linear(keras.optimizers.schedules.LearningRateSchedule):
    """Falls by steps."""

    def __call__(self, step):
        return 0.1 / (1 + ops.cast(step, "float64"))

    def get_config(self):
        return {}


class HalvesKernel(keras.callbacks.Callback):
    """Changes a weight and the learning rate after each epoch."""

    def on_epoch_end(self, epoch, logs=None):
        self.model.layers[0].kernel.assign(self.model.layers[0].kernel * 0.5)
        self.model.optimizer.learning_rate = 0.1 / (1 + logs["loss"])


class Orbax(getattr(keras.callbacks, "OrbaxCheckpoint", keras.callbacks.Callback)):
    """An OrbaxCheckpoint without its package, which is not installed."""

    def __init__(self):
        keras.callbacks.Callback.__init__(self)


class Steps(keras.Model):
    """Has a step of its own, with a metric of the mean loss, and one of a sum over rows."""

    def __init__(self, tracker):
        super().__init__()
        self.inner, self.tracker = dense(), tracker

    def call(self, x):
        return self.inner(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(x, y, predicted)
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        self.tracker.update_state(ops.mean(ops.square(y - predicted), -1))
        return {"tracked": self.tracker.result()}


def tracked(metric: type[keras.metrics.Metric]) -> Arrays:
    model = Steps(metric(name="tracked"))
    model.compile(sgd(), "mse")
    return trained(model)


def compiled(*, loss: Any = "mse", optimizer: Any = None, **options: Any) -> Arrays:
    model = dense()
    model.compile(optimizer or sgd(), loss, **options)
    return trained(model)


def metric_in_float32(name: str) -> Arrays:
    """Train with a metric that TensorFlow has for float32 only."""
    symbol = getattr(keras.metrics, name)
    metric = symbol(k=2) if isinstance(symbol, type) else symbol
    is_sparse = name.lower().startswith("sparse")
    loss = "sparse_categorical_crossentropy" if is_sparse else "categorical_crossentropy"
    x = keras.Input((6,))
    predicted = dense("softmax")(x)
    rounded = keras.layers.Activation("linear", dtype="float32")(predicted)
    model = keras.Model(x, [predicted, rounded])
    model.compile(sgd(), [loss, None], metrics=[[], [metric]])
    y = LABELS[:, None] if is_sparse else ONE_HOT
    return trained(model, X, (y, y))


def listed() -> Arrays:
    model = dense()
    model.compile(sgd(), "mse")
    callbacks = keras.callbacks.CallbackList([HalvesKernel()], add_history=True, model=model)
    history = fit(model, callbacks=callbacks)
    return weights_of(model) | logs_of(history)


def mapped() -> Arrays:
    optimizers = keras.optimizers.OptimizerMap(keras.optimizers.SGD(0.1))
    optimizers[".*bias"] = keras.optimizers.Adam(0.01)
    return compiled(optimizer=keras.optimizers.MultiOptimizer(optimizers))


def monitored() -> Arrays:
    """Count what a server gets: it is the same on any cluster."""
    received: list[Any] = []

    class Server(BaseHTTPRequestHandler):
        def do_POST(self):
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{server.server_port}"
        found = run_callbacks([keras.callbacks.RemoteMonitor(root, send_as_json=True)])
        server.shutdown()
    losses = [json.loads(each)["loss"] for each in received]
    return found | {"received": np.array(losses)}


class Centered(keras.layers.Layer):
    """Subtracts the mean of the rows that it has seen, which is its state."""

    def build(self, shape):
        options = {"trainable": False, "aggregation": "mean"}  # of the replicas
        self.mean = self.add_weight(shape=shape[1:], initializer="zeros", **options)

    def call(self, x, training=False):
        if training:
            self.mean.assign(0.9 * self.mean + 0.1 * ops.mean(x, 0))
        return x - self.mean


class Halved(keras.layers.Wrapper):
    """Calls the layer inside."""

    def call(self, x):
        return self.layer(x) / 2


def with_layer(layer: keras.Layer) -> Arrays:
    model = dense(None, layer, keras.layers.Dense(3))
    model.compile(sgd(), "mse")
    return trained(model)


def saved_layer() -> Arrays:
    """Train on what a SavedModel computes."""
    module = tf.Module()
    spec = tf.TensorSpec((None, 3), tf.float64)
    module.serve = tf.function(lambda x: {"outputs": 2 * x}, input_signature=[spec])
    folder = tempfile.mkdtemp(prefix="table-")
    tf.saved_model.save(module, folder, {"serving_default": module.serve})
    layer = keras.layers.TFSMLayer(folder, call_endpoint="serving_default")
    x = keras.Input((6,))
    model = keras.Model(x, keras.layers.Dense(3)(layer(dense()(x))["outputs"]))
    model.compile(sgd(), "mse")
    return trained(model)


USER_CASES: dict[str, Callable[[], Arrays]] = {
    "keras.callbacks.Callback": lambda: run_callbacks([HalvesKernel()]),
    "keras.callbacks.CallbackList": listed,
    "keras.callbacks.OrbaxCheckpoint": lambda: run_callbacks([Orbax()]),
    "keras.callbacks.RemoteMonitor": monitored,
    "keras.callbacks.SwapEMAWeights": lambda: run_callbacks(
        [keras.callbacks.SwapEMAWeights()],
        keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.8),
    ),
    "keras.callbacks.SwapEMAWeights(swap_on_epoch=True)": lambda: run_callbacks(
        [keras.callbacks.SwapEMAWeights(swap_on_epoch=True)],
        keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.8),
    ),
    "keras.layers.Layer": lambda: with_layer(Centered()),
    "keras.layers.TFSMLayer": saved_layer,
    "keras.layers.Wrapper": lambda: with_layer(Halved(keras.layers.Dense(4))),
    "keras.losses.Loss": lambda: compiled(loss=PerRow()),
    "keras.metrics.Metric": lambda: compiled(metrics=[Count()]),
    "keras.metrics.Mean": lambda: tracked(keras.metrics.Mean),
    "keras.metrics.Sum": lambda: tracked(keras.metrics.Sum),
    **{
        f"keras.metrics.{name}": functools.partial(metric_in_float32, name)
        for name in (
            *("TopKCategoricalAccuracy", "SparseTopKCategoricalAccuracy"),
            *("top_k_categorical_accuracy", "sparse_top_k_categorical_accuracy"),
        )
    },
    "keras.optimizers.MultiOptimizer": mapped,
    "keras.optimizers.Optimizer": lambda: compiled(optimizer=Momentum(0.1)),
    "keras.optimizers.schedules.LearningRateSchedule": lambda: compiled(
        optimizer=keras.optimizers.Adam(Linear())
    ),
}
