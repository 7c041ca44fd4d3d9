"""Data sets that do not keep the order of their rows, on several tasks."""

from __future__ import annotations

import pytest
import tensorflow as tf
from tensorflow.python.ops import gen_dataset_ops, gen_experimental_dataset_ops

from distlaunch_trainer.input.user_data.user_dataset import (
    cache_by_task,
    keep_order,
    with_one_order,
)

Dataset = tf.data.Dataset
UNORDERED = {"num_parallel_calls": 2, "deterministic": False}


@pytest.fixture(autouse=True)
def _kept_order(monkeypatch):
    """Keep the order until the end of a test."""
    for module in (gen_dataset_ops, gen_experimental_dataset_ops):
        for name, value in list(vars(module).items()):
            if callable(value):
                monkeypatch.setattr(module, name, value)
    keep_order()


def mapped():
    return Dataset.range(9).map(lambda n: n + 1, **UNORDERED)


@pytest.mark.parametrize(
    "create",
    [
        mapped,
        lambda: Dataset.range(9).interleave(Dataset.range, **UNORDERED),
        lambda: Dataset.range(9).batch(3, **UNORDERED),
        lambda: Dataset.range(9).flat_map(lambda _: mapped()),
        lambda: Dataset.range(9).apply(
            tf.data.experimental.parallel_interleave(Dataset.range, 2, sloppy=True)
        ),
    ],
    ids=["map", "interleave", "batch", "nested", "sloppy"],
)
def test_operations_keep_the_order_of_rows(create):
    """By the graph, as rows change places only by chance."""
    variant = tf.data.experimental.to_variant(create())
    text = tf.raw_ops.DatasetToGraphV2(input_dataset=variant).numpy()
    graph = tf.compat.v1.GraphDef.FromString(text)
    nodes = [*graph.node, *(node for each in graph.library.function for node in each.node_def)]
    orders = {node.attr["deterministic"].s for node in nodes if "deterministic" in node.attr}
    assert orders == {b"true"}


def test_the_option_of_a_data_set_is_overridden():
    options = tf.data.Options()
    options.deterministic = False
    assert with_one_order(Dataset.range(3).with_options(options)).options().deterministic


def test_a_task_caches_into_a_file_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(Dataset, "cache", Dataset.cache)  # restored at the end
    cache_by_task("worker:1")
    for file in (str(tmp_path / "rows"), tf.constant(str(tmp_path / "others"))):
        assert [int(n) for n in Dataset.range(3).cache(file)] == [0, 1, 2]
    names = {path.name.partition(".")[2].split(".")[0] for path in tmp_path.iterdir()}
    assert names == {"worker-1"}
    assert [int(n) for n in Dataset.range(3).cache()] == [0, 1, 2]
