"""The graph of a training step on two virtual devices, as data: which collectives, of what size.

    python -m training_graph CASE...
    python -m training_graph "eight devices"

Prints a JSON object: the graph of each case, and what steps do that are executed. A graph shows
what GPUs would do, and can be read without one.
"""

from __future__ import annotations

import collections
import json
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import input_lib, mirrored_strategy
from tensorflow.python.eager import context

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.fit.open_data import Caller, open_data
from distlaunch_trainer.model.model_build import build_model
from distlaunch_trainer.step.model_replicas import ModelReplicas
from distlaunch_trainer.step.step_functions import StepFunctions

if TYPE_CHECKING:
    from collections.abc import Callable

layers = keras.layers
ROWS = 8
DEVICES = ["CPU:1", "CPU:2"]  # CPU:0 is the host's, as beside GPUs


def convolutions() -> tuple[keras.Model, Any]:
    hidden = [
        layers.Conv2D(4, 3),
        layers.BatchNormalization(),
        layers.Flatten(),
        layers.Dense(2, "softmax"),
    ]
    model = keras.Sequential([layers.Input((6, 6, 1)), *hidden])
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model, (np.zeros((ROWS, 6, 6, 1), "float32"), np.zeros(ROWS, "int64"))


def xla() -> tuple[keras.Model, Any]:
    model, data = convolutions()
    model.jit_compile = True
    return model, data


def xla_with_collectives() -> tuple[keras.Model, Any]:
    """XLA compiles no all-reduce, so it compiles nothing of this model."""
    norm = layers.BatchNormalization(synchronized=True)
    model = keras.Sequential([layers.Input((6,)), norm, layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=True)
    return model, (np.zeros((ROWS, 6), "float32"), np.zeros((ROWS, 1), "float32"))


def two_packs() -> tuple[keras.Model, Any]:
    """48 MB of weights in six layers."""
    width = 1414
    hidden = [layers.Dense(width, use_bias=False) for _ in range(6)]
    model = keras.Sequential([layers.Input((width,)), *hidden])
    model.compile("sgd", "mse")
    return model, (np.zeros((ROWS, width), "float32"), np.zeros((ROWS, width), "float32"))


def embedding(rows: int = 10_000, optimizer: str = "sgd") -> tuple[keras.Model, Any]:
    model = keras.Sequential(
        [layers.Input((5,)), layers.Embedding(rows, 16), layers.Flatten(), layers.Dense(1)]
    )
    model.compile(optimizer, "mse")
    return model, (np.zeros((ROWS, 5), "int64"), np.zeros((ROWS, 1), "float32"))


def accumulation() -> tuple[keras.Model, Any]:
    model = keras.Sequential([layers.Input((6,)), layers.Dense(4), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(gradient_accumulation_steps=4), "mse")
    return model, (np.zeros((ROWS, 6), "float32"), np.zeros((ROWS, 1), "float32"))


def xla_adamw() -> tuple[keras.Model, Any]:
    model, data = convolutions()
    adamw = keras.optimizers.AdamW(0.01, weight_decay=0.1, global_clipnorm=0.5)
    model.compile(adamw, "sparse_categorical_crossentropy", jit_compile=True)
    return model, data


def xla_on_gpus() -> tuple[keras.Model, Any]:
    """A layer that assigns a variable of which all replicas get the mean."""

    class Statistic(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.mean = self.add_weight(trainable=False, aggregation="mean")

        def call(self, x: Any) -> Any:
            self.mean.assign(keras.ops.mean(x))
            return x

    mirrored_strategy._is_gpu_device = lambda _: True
    model = keras.Sequential([layers.Input((6,)), Statistic(), layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=True)
    return model, (np.zeros((ROWS, 6), "float32"), np.zeros((ROWS, 1), "float32"))


def bfloat16() -> tuple[keras.Model, Any]:
    keras.config.set_dtype_policy("bfloat16")
    model, data = embedding()
    keras.config.set_dtype_policy("float32")
    return model, data


def masked_loss() -> tuple[keras.Model, Any]:
    hidden = [layers.Masking(), layers.Dense(4, kernel_regularizer="l2"), layers.Dense(1)]
    model = keras.Sequential([layers.Input((5, 3)), *hidden])
    model.compile("sgd", "mse", jit_compile=True)
    return model, (np.zeros((ROWS, 5, 3), "float32"), np.zeros((ROWS, 5, 1), "float32"))


CASES: dict[str, Callable[[], tuple[keras.Model, Any]]] = {
    function.__name__: function
    for function in (
        *(convolutions, xla, xla_with_collectives, xla_adamw, two_packs),
        *(embedding, accumulation, masked_loss, bfloat16, xla_on_gpus),
    )
}


CASES["last_step"] = CASES["unknown_length"] = convolutions
CASES["small_embedding"] = partial(embedding, 5 * ROWS)
CASES["squared_embedding"] = partial(embedding, 5 * ROWS, "adam")


def batches(strategy: tf.distribute.Strategy, data: Any) -> Any:
    """Return an iterator over batches of half the rows for each replica."""
    rows = tf.data.Dataset.from_tensor_slices(data).repeat().batch(ROWS // 2)
    count = tf.constant(ROWS // 2, tf.int64)
    elements = rows.map(lambda *batch: (batch, count, 2 * count))
    return iter(strategy.distribute_datasets_from_function(lambda _: elements))


def describe(function: tf.types.experimental.ConcreteFunction) -> dict[str, Any]:
    """Return the collectives of a step on one replica, and what XLA compiles."""
    graph = function.graph.as_graph_def(add_shapes=True)
    xla = [part for part in graph.library.function if part.attr["_XlaMustCompile"].b]
    branches = branch_functions(graph)
    in_branch = [
        node
        for part in graph.library.function
        if part.signature.name in branches
        for node in part.node_def
    ]
    all_nodes = [*graph.node, *(node for part in graph.library.function for node in part.node_def)]
    functions = graph.library.function
    outside = [node for part in functions if part not in xla for node in part.node_def]
    return {
        "collectives": collectives(all_nodes),
        "conditional": [c["bytes"] for c in collectives(in_branch)],
        "assignments": sum(node.op.startswith("Assign") for node in all_nodes),
        "xla": sorted({node.op for part in xla for node in part.node_def}),
        "outside_xla": sorted({node.op for node in (*graph.node, *outside)}),
        "branches": len(branches),
    }


def branch_functions(graph: Any) -> set[str]:
    """Return the functions that run only if a condition holds."""
    functions = [node for part in graph.library.function for node in part.node_def]
    return {
        node.attr[branch].func.name
        for node in (*graph.node, *functions)
        if node.op in {"If", "StatelessIf"}
        for branch in ("then_branch", "else_branch")
    }


def collectives(nodes: list[Any]) -> list[dict[str, Any]]:
    """Return the collectives among the nodes of a graph for two replicas, for one of them."""
    count: collections.Counter[tuple[str, str, int]] = collections.Counter()
    for node in nodes:
        if node.op.startswith("Collective"):
            dtype = tf.dtypes.as_dtype(node.attr["T"].type)
            (shape,) = (tf.TensorShape(s) for s in node.attr["_output_shapes"].list.shape)
            size = shape.num_elements()
            count[node.op, dtype.name, -1 if size is None else size * dtype.size] += 1
    return [
        {"op": op, "dtype": dtype, "bytes": size, "count": number // 2}
        for (op, dtype, size), number in sorted(count.items())
    ]


def training_graph(name: str) -> tf.types.experimental.ConcreteFunction:
    """Trace the training step of a case on two virtual devices."""
    strategy = tf.distribute.MirroredStrategy(DEVICES)
    with strategy.scope():
        model, data = CASES[name]()
        model._symbolic_build(
            data_batch=tf.data.Dataset.from_tensor_slices(data).batch(ROWS).element_spec
        )
    steps = StepFunctions(ModelReplicas(model, strategy))
    steps.replicas.global_batch = ROWS
    inputs = batches(strategy, data), tf.constant(1), tf.zeros([3])
    options = {"has_empty_replicas": name == "last_step", "may_end": name == "unknown_length"}
    return steps._train_function.get_concrete_function(*inputs, **options)


def executed() -> dict[str, Any]:
    """Train a normalisation of rows 0, 0, ... on one replica and of rows 1, 1, ... on the other.

    Return the moving means before and after they are averaged, and the types of tensors that steps
    send between devices; those of the batches are known. The host has a device of its own.
    """
    strategy = tf.distribute.MirroredStrategy(DEVICES)
    with strategy.scope():
        model = keras.Sequential([layers.Input((1,)), layers.BatchNormalization(momentum=0.5)])
        model.compile("sgd", "mse")
        build_model(model, tuple(tf.TensorSpec((None, 1), each) for each in ("uint8", "int16")))
    steps = StepFunctions(ModelReplicas(model, strategy))
    rows = np.repeat([[0], [1]], ROWS // 2, axis=0)
    context.enable_run_metadata()
    data = rows.astype("uint8"), rows.astype("int16")
    steps.train(batches(strategy, data), tf.constant(2), tf.zeros([3]))
    graphs = context.export_run_metadata().partition_graphs
    context.disable_run_metadata()
    sent = [node.attr for graph in graphs for node in graph.node if node.op == "_Send"]
    between = [each for each in sent if each["send_device"].s != each["recv_device"].s]
    values = strategy.experimental_local_results(model.layers[0].moving_mean.value)
    before = [float(value[0]) for value in values]
    steps.synchronize()
    return {
        "before": before,
        "after": [float(value[0]) for value in values],
        "moved": sorted({tf.as_dtype(each["T"].type).name for each in between}),
    }


def read_to_the_end() -> dict[str, Any]:
    """Train on data of unknown length on eight devices; return what was done."""
    strategy = tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(1, 9)])
    with strategy.scope():
        model = keras.Sequential([layers.Input((1,)), layers.Dense(1)])
        model.compile("sgd", "mse")
        build_model(model, tuple(tf.TensorSpec((None, 1), "float32") for _ in range(2)))
    steps, cluster = StepFunctions(ModelReplicas(model, strategy)), Cluster(Role(), strategy)
    x = np.ones((52, 1), "float32")
    data = tf.data.Dataset.from_tensor_slices((x, x)).filter(lambda *_: True).batch(16)
    opened = open_data(Caller(cluster, None, "fit()"), data)
    agreements = []
    agree = input_lib._calculate_replicas_with_values
    input_lib._calculate_replicas_with_values = lambda *parts: agreements.append(1) or agree(*parts)
    reader, rows = opened.reader(cluster), []
    reader.begin(0)
    while not reader.has_ended:
        results = steps.train(
            *(reader.iterator, tf.constant(1), tf.zeros([3])), has_empty_replicas=True, may_end=True
        )
        if not reader.is_end(results.signals.numpy()[3:], len(rows)):
            rows.append(int(results.rows))
    variant = tf.data.experimental.to_variant(opened.parts.batches)
    text = tf.raw_ops.DatasetToGraphV2(input_dataset=variant).numpy()
    operations = {node.op for node in tf.compat.v1.GraphDef.FromString(text).node}
    return {
        "rows": rows,
        "agreements": len(agreements),
        "is_finite": bool(np.isfinite(model.get_weights()[0]).all()),
        "operations": sorted(op for op in operations if "Map" in op or "Interleave" in op),
    }


def main() -> None:
    (cpu,) = tf.config.list_physical_devices("CPU")
    devices = [tf.config.LogicalDeviceConfiguration()] * 9
    tf.config.set_logical_device_configuration(cpu, devices)
    if sys.argv[1:] == ["eight devices"]:  # a process takes one number of replicas
        print(json.dumps(read_to_the_end()))
        return
    graphs = {name: describe(training_graph(name)) for name in sys.argv[1:]}
    print(json.dumps({"graphs": graphs, "executed": executed()}))


if __name__ == "__main__":
    main()
