"""A small model for each public symbol of Keras, made by rule.

Functions train a model for a row of the table, or for several rows in one model, e.g. for
`keras.losses.Dice`, and return the arrays that it ends with: weights and logs.
"""

from __future__ import annotations

import ast
import functools
import inspect
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

layers, losses, ops = keras.layers, keras.losses, keras.ops

ROWS, BATCH, EPOCHS = 50, 16, 2  # the last batch has two rows

_random = np.random.default_rng(0)
X = _random.normal(size=(ROWS, 6))
LABELS = _random.integers(0, 3, ROWS)
ONE_HOT = np.eye(3)[LABELS]
SEVERAL = np.floor(2 * _random.random((ROWS, 3)))
WEIGHTS = 0.5 + _random.random(ROWS)

Arrays = dict[str, np.ndarray]


def symbol_of(row: str) -> Any:
    """Return what a row such as `keras.layers.LSTM(stateful=True)` is of."""
    _, *names = row.partition("(")[0].split(".")
    return functools.reduce(getattr, names, keras)


def new(row: str) -> Any:
    """Call the class of a row with what it requires, and with the row's own arguments."""
    symbol = symbol_of(row)
    required = {
        name: value() if callable(value := REQUIRED[name]) else value
        for name, each in inspect.signature(symbol).parameters.items()
        if each.default is each.empty
        and each.kind is each.POSITIONAL_OR_KEYWORD
        and symbol.__name__ not in INNER
    }
    _, bracket, given = row.partition("(")
    call = ast.parse(f"f({given}", mode="eval").body if bracket else None
    keywords = call.keywords if isinstance(call, ast.Call) else []
    arguments = required | {each.arg: ast.literal_eval(each.value) for each in keywords}
    if hasattr(symbol, "transform_images"):  # some of which multiply by float32 inside
        arguments["dtype"] = "float32"
    return symbol(**arguments | INNER.get(symbol.__name__, dict)())


REQUIRED: dict[str, Any] = {
    "backup_dir": "backup",
    "boundaries": [2, 4],
    "cells": lambda: [layers.GRUCell(3), layers.LSTMCell(2)],
    "decay_rate": 0.9,
    "decay_steps": 5,
    "default_optimizer": keras.optimizers.SGD,
    "directory": "orbax",
    "factor": 0.3,
    "filename": "log.csv",
    "filepath": "best.keras",
    "filters": 2,
    "first_decay_steps": 3,
    "fn": lambda: losses.mean_squared_error,
    "head_dim": 2,
    "height": 6,
    "height_factor": 0.2,
    "initial_learning_rate": 0.1,
    "inner_optimizer": keras.optimizers.SGD,
    "kernel_size": 2,
    "key_dim": 2,
    "num_classes": 3,
    "num_heads": 2,
    "num_key_value_heads": 2,
    "num_query_heads": 2,
    "optimizer_map": dict,
    "precision": 0.5,
    "rate": 0.3,
    "recall": 0.5,
    "schedule": lambda: lambda _, rate: rate * 0.9,
    "sensitivity": 0.5,
    "specificity": 0.5,
    "stddev": 0.1,
    "target_class_ids": [0, 2],
    "units": 4,
    "values": [0.1, 0.05, 0.01],
    "width": 6,
    "width_factor": 0.2,
}
"""What a required argument gets, by its name; functions are called for a new one."""


INNER: dict[str, Callable[[], dict[str, Any]]] = {
    "Bidirectional": lambda: {"layer": layers.GRU(2, dropout=0.3)},
    "Pipeline": lambda: {"layers": [layers.GaussianNoise(0.1), layers.Dropout(0.3)]},
    "RNN": lambda: {"cell": layers.GRUCell(3, dropout=0.3)},
    "SpectralNormalization": lambda: {"layer": layers.Dense(4)},
    "TimeDistributed": lambda: {"layer": layers.Dropout(0.3)},
}
"""What layers have inside: draws, or state."""


def dense(activation: str | None = None, *last: keras.Layer) -> keras.Sequential:
    hidden = layers.Dense(5, "tanh"), layers.Dense(3, activation)
    return keras.Sequential([keras.Input((6,)), *hidden, *last])


def sgd() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(0.1)


def fit(model: keras.Model, x: Any = X, y: Any = ONE_HOT, *, weights: Any = None, **kw: Any) -> Any:
    """Train on batches of the rows in their order; return the history."""
    rows = (x, y) if weights is None else (x, y, weights)
    batches = tf.data.Dataset.from_tensor_slices(rows).batch(BATCH)
    return model.fit(batches, **{"epochs": EPOCHS, "verbose": 0, **kw}).history


def weights_of(model: keras.Model) -> Arrays:
    variables = [*model.variables, *(model.optimizer.variables if model.optimizer else [])]
    numbered = {f"{number} {v.path}": v for number, v in enumerate(variables)}
    return {name: np.asarray(v) for name, v in numbered.items() if v.dtype != "string"}


def logs_of(history: dict[str, list[Any]]) -> Arrays:
    return {f"logs {name}": np.asarray(values, float) for name, values in history.items()}


def trained(model: keras.Model, *data: Any, **options: Any) -> Arrays:
    history = fit(model, *data, **options)
    return weights_of(model) | logs_of(history)


# Losses: of probabilities and several classes of a row, one-hot labels, or as the name says.


def train_loss(row: str) -> Arrays:
    symbol = symbol_of(row)
    name = symbol.__name__.lower()
    loss = new(row) if isinstance(symbol, type) else symbol
    if "q" in inspect.signature(symbol).parameters and loss is symbol:
        loss = functools.wraps(symbol)(lambda y, predicted: symbol(y, predicted, 0.5))
    if name == "ctc":
        model = keras.Sequential([keras.Input((7, 2)), layers.Dense(4, "tanh"), layers.Dense(4)])
        random = np.random.default_rng(1)
        data = random.normal(size=(ROWS, 7, 2)), random.integers(1, 4, (ROWS, 3))
    elif name == "circle":
        model, data = dense(None, layers.UnitNormalization()), (X, LABELS)
    else:
        is_label = name.startswith("sparse") or "generalizedcross" in name.replace("_", "")
        is_class = is_label or "categorical" in name
        model = dense("softmax" if is_class else "sigmoid")
        data = X, LABELS[:, None] if is_label else ONE_HOT if is_class else SEVERAL
    model.compile(sgd(), loss)
    return trained(model, *data)


# Metrics: likewise, of the training with weights and of the validation without.


def train_metrics(rows: list[str]) -> dict[str, Arrays]:
    """Train a model with all these metrics, which have the same labels and predictions."""
    kind, weighted = metric_kind(rows[0])
    model = dense("softmax")
    if kind == "class":  # a class of two in each of three columns, not its probability
        model.add(layers.Lambda(lambda x: ops.clip(5 * x - 1, 0, 1)))
    y = LABELS[:, None] if kind == "label" else ONE_HOT
    metrics = {row: _metric(row) for row in rows}
    found = list(metrics.values())
    kept = {"weighted_metrics": found} if weighted else {"metrics": found}
    loss = "sparse_categorical_crossentropy" if kind == "label" else "mse"
    model.compile(sgd(), loss, **kept)
    batches = tf.data.Dataset.from_tensor_slices((X[:21], y[:21])).batch(BATCH)
    history = fit(model, y=y, weights=WEIGHTS, validation_data=batches)
    names = {row: getattr(each, "name", None) or each.__name__ for row, each in metrics.items()}
    return {
        row: logs_of({key: values for key, values in history.items() if key.endswith(name)})
        for row, name in names.items()
    }


def _metric(row: str) -> Any:
    symbol = symbol_of(row)
    return new(row) if isinstance(symbol, type) else symbol


def metric_kind(row: str) -> tuple[str, bool]:
    """Return which labels a metric is of, and whether it takes weights."""
    symbol = symbol_of(row)
    name = symbol.__name__.lower().replace("_", "")
    kind = "label" if name.startswith("sparse") else "one-hot"
    if not isinstance(symbol, type):
        return kind, True
    if name.endswith("iou") or name == "accuracy":
        return ("one-hot" if "onehot" in name else "class"), False
    return kind, "sample_weight" in inspect.signature(symbol.update_state).parameters


# Optimizers, their schedules and callbacks.


def train_optimizer(row: str) -> Arrays:
    model = dense()
    model.compile(new(row), "mse")
    return trained(model)


def train_schedule(row: str) -> Arrays:
    model = dense()
    model.compile(keras.optimizers.Adam(new(row)), "mse")
    return trained(model)


def train_callback(row: str) -> Arrays:
    return run_callbacks([new(row)])


def run_callbacks(callbacks: Any, optimizer: Any = None, **options: Any) -> Arrays:
    model = dense()
    model.compile(optimizer or sgd(), "mse", metrics=["mae"])
    validation = tf.data.Dataset.from_tensor_slices((X[:21], ONE_HOT[:21])).batch(BATCH)
    return trained(model, epochs=4, callbacks=callbacks, validation_data=validation, **options)


# Layers: each in a branch of a model, which has an output and a loss of its own.

_SHAPES = ((6,), (6, 3), (8, 8, 3), (4, 4, 4, 3), (3, 4, 4, 4, 2))


def train_layers(rows: list[str]) -> dict[str, Arrays]:
    """Train a model with these layers, beside each other."""
    if any(hasattr(symbol_of(row), "transform_images") for row in rows):
        keras.config.set_floatx("float32")  # some of them compute in this type alone
    try:
        return _train_layers(rows)
    finally:
        keras.config.set_floatx("float64")


def _train_layers(rows: list[str]) -> dict[str, Arrays]:
    inputs, outputs, data = [], [], []
    for number, row in enumerate(rows):
        x, output = _branch(new(row), f"row{number}")
        inputs += [layer.output for layer, _ in x]
        data += [values for _, values in x]
        outputs.append(output)
    model = keras.Model(inputs, outputs)
    model.compile(sgd(), "mse")
    rows_of_full_batches = 48  # a stateful layer has no other
    some = rows_of_full_batches if any("stateful" in row for row in rows) else ROWS
    x, y = tuple(each[:some] for each in data), tuple(ONE_HOT[:some] for _ in rows)
    found = trained(model, x, y)
    if len(rows) == 1:
        return {rows[0]: found}
    return {
        row: {
            name: values
            for name, values in found.items()
            if f"row{number}_" in name or name == f"logs row{number}_loss"
        }
        for number, row in enumerate(rows)
    }


def _branch(layer: Any, name: str) -> Any:
    """Return the inputs of a layer with their data, and a branch from them through it."""
    layer.name = f"{name}_{layer.name}" if hasattr(layer, "name") else name
    for x in _inputs(layer, name):
        symbols = [each.output for each, _ in x]
        try:
            hidden = layer(symbols) if isinstance(layer, layers.Attention) else layer(*symbols)
        except (ValueError, TypeError, IndexError, AttributeError, NotImplementedError):
            continue
        break
    else:
        message = f"no input fits {layer.name}"
        raise ValueError(message)
    hidden = layers.Lambda(lambda x: ops.cast(x, "float64"))(keras.tree.flatten(hidden)[0])
    if hasattr(layer, "transform_images"):  # of another size without training, for some
        hidden = layers.Conv2D(3, 3, activation="tanh", name=f"{name}_pixels")(hidden / 255)
        hidden = layers.GlobalAveragePooling2D()(hidden)
    hidden = layers.Flatten()(hidden)
    scaled = layers.Lambda(lambda x: x / (1 + ops.max(ops.abs(x), -1, keepdims=True)))(hidden)
    return x, layers.Dense(3, name=f"{name}_output")(scaled)


def _inputs(layer: Any, name: str) -> Iterable[Any]:
    """Yield inputs that a layer may take: lists of an input layer and its data."""
    size = BATCH if getattr(layer, "stateful", False) else None

    def one(values: np.ndarray, number: int = 0) -> Any:
        text = values.dtype.kind in "US"
        dtype = "string" if text else str(values.dtype)
        made = layers.InputLayer(values.shape[1:], size, dtype, name=f"{name}_input{number}")
        return made, tf.constant(values) if text else values

    random = np.random.default_rng(5)
    if isinstance(layer, (layers.StringLookup, layers.TextVectorization)):
        words = np.array(["a", "b", "c", "d"])[random.integers(0, 4, (ROWS, 1))]
        layer.adapt(words)
        yield [one(words)]
    elif isinstance(layer, (layers.IntegerLookup, layers.Embedding, layers.Hashing)):
        numbers = random.integers(1, 8, (ROWS, 4))
        if hasattr(layer, "adapt"):
            layer.adapt(numbers)
        yield [one(numbers)]
    elif hasattr(layer, "transform_images"):
        yield [one(random.uniform(0, 255, (ROWS, 8, 8, 3)))]
    elif hasattr(layer, "adapt"):
        layer.adapt(X)
        yield [one(X)]
    else:
        for shape in _SHAPES[isinstance(layer, layers.RNN) :]:
            if "Attention" in type(layer).__name__:
                yield [one(random.normal(size=(ROWS, 6, 3)), number) for number in range(2)]
            yield [one(random.normal(size=(ROWS, *shape)))]
