"""The graph of a user's data set, which is changed and made into a data set again."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

Dataset = tf.data.Dataset


class DatasetGraph:
    """The graph of a data set; OpError or ValueError is raised if TensorFlow has none of it."""

    def __init__(self, dataset: Dataset) -> None:
        text = tf.raw_ops.DatasetToGraphV2(
            input_dataset=tf.data.experimental.to_variant(dataset),
            external_state_policy=tf.data.experimental.ExternalStatePolicy.IGNORE.value,
        )
        self._made_of = dataset
        self.graph = tf.compat.v1.GraphDef.FromString(text.numpy())
        self._nodes = {node.name: node for node in self.graph.node}

    def dataset(self, spec: Any) -> Dataset:
        """Return the data set of the graph."""
        variant = tf.raw_ops.DatasetFromGraph(graph_def=self.graph.SerializeToString())
        dataset = tf.data.experimental.from_variant(variant, spec)
        dataset._made_of = self._made_of  # noqa: SLF001 - whose generators of seeds end with it
        return dataset

    def input(self, node: Any, position: int = 0) -> Any:
        """Return the node that is an input of another one."""
        return self._nodes[node.input[position].partition(":")[0]]

    def constant(self, name: str, value: Any, dtype: tf.DType) -> str:
        """Add a constant, and return its name."""
        node = self.graph.node.add(name=name, op="Const")
        node.attr["dtype"].type = dtype.as_datatype_enum
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, dtype))
        return name

    def renew_shuffles(self, number: int) -> bool:
        """Have each ``shuffle()`` before a ``repeat()`` draw its orders from a number.

        0 gives the orders of its first iteration. Of a data set that repeats its elements, an
        iteration that ends earlier leaves the seeds of the next one to how far TensorFlow has read
        ahead, which differs between tasks. Return whether there is such a shuffle.
        """
        if not any(node.op == "RepeatDataset" for node in self.graph.node):
            return False
        shuffles = [node for node in self.graph.node if node.op == "ShuffleDatasetV3"]
        renewed = [node for node in shuffles if node.attr["reshuffle_each_iteration"].b]
        for node in renewed:
            # The older operation has the same orders, and no generator of seeds that is shared.
            seed = int(tf.make_ndarray(self.input(node, 3).attr["value"].tensor))
            del node.input[3:]
            node.input.append(
                self.constant(f"distlaunch/{node.name}", seed + (number << 32), tf.int64)
            )
            node.op = "ShuffleDataset"
        return bool(renewed)
