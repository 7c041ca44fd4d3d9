"""The work of a user's data set, divided among the tasks.

A data set that ends with ``batch(n)`` after operations that work element by element is the same if
each task takes its elements before these operations: every nth element, in batches of ``n`` divided
by the number of tasks. So each task decodes its own rows alone. Elsewhere each task makes whole
batches and takes its rows of them.

TensorFlow's own sharding by data takes rows at the end, and its sharding by files other batches:
https://www.tensorflow.org/api_docs/python/tf/data/experimental/AutoShardPolicy
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from distlaunch_trainer.input.batch_rows import count_rows, map_tensors
from distlaunch_trainer.keras_compat.keras_random import SEEDED_OPERATIONS, is_same, replica_seed

from .user_dataset import batch_end, with_one_order

Dataset = tf.data.Dataset

_AFTER_BATCH = {"PrefetchDataset", "OptionsDataset", "ModelDataset"}
_BATCH = {"BatchDatasetV2", "ParallelBatchDataset"}
_MAPS = {"MapDataset", "ParallelMapDataset", "ParallelMapDatasetV2"}
_ELEMENTWISE = _MAPS | {"PrefetchDataset", "OptionsDataset"}
# Stateful by their definition: functions, which are looked at, and what changes nothing.
_HARMLESS = {
    *("Assert", "Case", "If", "LookupTableFindV2", "LookupTableSizeV2", "PrintV2"),
    *("ReadVariableOp", "StatefulPartitionedCall", "While"),
}


class Divided(NamedTuple):
    """A data set of a task's rows."""

    # (data, rows, global_rows) for each global batch: a task's rows of it, their number, and that
    # of all tasks. Where it has none, the data have one row, which does not count.
    parts: Dataset
    log_line: str  # with what is divided: batch, and operations before it


def divide_work(
    batches: Dataset,
    task: int,
    tasks: int,
    rows_of_pass: int | None = None,
    renewed: int | None = None,
) -> Divided | None:
    """Return the rows ``task, task + tasks ...`` of each batch, of which only these are made.

    None is returned where that cannot be done so that all rows stay the same. ``rows_of_pass`` is
    known where the data set has been read to count them, ``renewed`` is a number for
    `renew_shuffles`.
    """
    end = batch_end(batches)
    specs = tf.nest.flatten(batches.element_spec)
    if tasks == 1 or end is None or not all(map(_is_dense, specs)):
        return None
    rows, size, drops = end
    if rows == tf.data.UNKNOWN_CARDINALITY:
        rows = rows_of_pass or 0
    is_endless = rows == tf.data.INFINITE_CARDINALITY
    if size % tasks or not (is_endless or rows >= tasks):
        return None
    graph = DatasetGraph.of(batches)
    chain = graph and graph.divide(task, tasks, size // tasks)
    if graph is None or chain is None:
        return None
    if renewed is not None:
        graph.renew_shuffles(renewed)
    spec = tf.nest.map_structure(
        lambda s: tf.TensorSpec([None, *s.shape[1:]], s.dtype), batches.element_spec
    )
    own = with_one_order(graph.dataset(spec))
    line = f"input: each task makes its own rows alone ({chain})"
    return Divided(_counted(own, rows, size, task, drops=drops), line)


class DatasetGraph:
    """The graph of a data set."""

    def __init__(self, graph: Any, made_of: Dataset) -> None:
        self.graph = graph
        self._made_of = made_of
        self._nodes = {node.name: node for node in graph.node}

    @classmethod
    def of(cls, dataset: Dataset) -> DatasetGraph | None:
        """Return the graph of a data set, None if TensorFlow has none."""
        try:
            text = tf.raw_ops.DatasetToGraphV2(
                input_dataset=tf.data.experimental.to_variant(dataset),
                external_state_policy=tf.data.experimental.ExternalStatePolicy.IGNORE.value,
            )
        except (tf.errors.OpError, ValueError):
            return None
        return cls(tf.compat.v1.GraphDef.FromString(text.numpy()), dataset)

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

    def divide(self, task: int, tasks: int, size: int) -> str | None:
        """Take a task's elements before the operations that end with ``batch``, in batches of size.

        Return what is divided, None if the data set does not end with ``batch``.
        """
        (end,) = (node for node in self.graph.node if node.op == "_Retval")
        node = self.input(end)
        after: list[Any] = []
        while node.op in _AFTER_BATCH:
            after.append(node)
            node = self.input(node)
        if node.op not in _BATCH:
            return None
        batch, elementwise = node, []
        while (before := self.input(elementwise[-1] if elementwise else batch)).op in _ELEMENTWISE:
            if before.op in _MAPS and not self._is_elementwise(before.attr["f"].func.name):
                break
            elementwise.append(before)
        while elementwise and elementwise[-1].op not in _MAPS:
            elementwise.pop()
        self._shard_before(elementwise[-1] if elementwise else batch, task, tasks)
        batch.input[1] = self.constant("distlaunch/size", size, tf.int64)
        keeps = self.constant("distlaunch/keeps", False, tf.bool)
        batch.input[2 if batch.op == "BatchDatasetV2" else 3] = keeps
        for changed in (batch, *after):
            for shape in changed.attr["output_shapes"].list.shape:
                if not shape.unknown_rank:
                    shape.dim[0].size = -1
        self._give_seeds_to(task, [n.attr["f"].func.name for n in elementwise if n.op in _MAPS])
        return ", ".join(n.op for n in (*reversed(elementwise), batch) if n.op in _MAPS | _BATCH)

    def _shard_before(self, node: Any, task: int, tasks: int) -> None:
        source = self.input(node)
        shard = self.graph.node.add(name="distlaunch/shard", op="ShardDataset")
        numbers = (("tasks", tasks), ("task", task))
        constants = [self.constant(f"distlaunch/{n}", v, tf.int64) for n, v in numbers]
        shard.input.extend([node.input[0], *constants])
        for name in ("output_types", "output_shapes"):
            key = name if name in source.attr else "Toutput_types"
            shard.attr[name].CopyFrom(source.attr[key])
        node.input[0] = shard.name

    def _is_elementwise(self, function: str) -> bool:
        """Return whether a function computes the same of an element wherever it is called.

        Random operations draw numbers of their own for each element anyway.
        """
        random = set() if is_same() else SEEDED_OPERATIONS
        operations = {node.op for node in self._nodes_of(function)} - _HARMLESS - random
        return not any(map(_is_stateful, operations))

    def _nodes_of(self, function: str) -> list[Any]:
        """Return the nodes of a function and of those that it calls."""
        functions = {each.signature.name: each for each in self.graph.library.function}
        pending, seen, nodes = [function], set(), []
        while pending:
            name = pending.pop()
            if name in seen or name not in functions:
                continue
            seen.add(name)
            nodes += functions[name].node_def
            for node in functions[name].node_def:
                pending += [v.func.name for v in node.attr.values() if v.HasField("func")]
                pending += [f.name for v in node.attr.values() for f in v.list.func]
        return nodes

    def _give_seeds_to(self, task: int, functions: list[str]) -> None:
        """Have the random operations of functions draw other numbers than those of other tasks."""
        for node in (node for function in functions for node in self._nodes_of(function)):
            if node.op in SEEDED_OPERATIONS and "seed2" in node.attr:
                node.attr["seed2"].i = replica_seed(node.attr["seed2"].i, task)


def _is_dense(spec: Any) -> bool:
    return isinstance(spec, tf.TensorSpec) and spec.shape.rank is not None


def _is_stateful(name: str) -> bool:
    definition = op_def_registry.get(name)  # None of a function of the graph's own
    return definition is not None and bool(definition.is_stateful)


def _counted(own: Dataset, rows: int, size: int, task: int, *, drops: bool) -> Dataset:
    """Return a task's batches with their rows, and those of all tasks.

    A pass has ``rows`` (negative if it has no end), a global batch ``size``; a last batch that is
    smaller may be left out (``drops``).
    """
    full, rest = divmod(rows, size) if rows >= 0 else (sys.maxsize, 0)

    def counted(number: tf.Tensor, data: Any) -> tuple[Any, ...]:
        total = tf.where(number < full, tf.constant(size, tf.int64), rest)
        return data, count_rows(data), total

    if rest and drops:  # also what was counted, without the rows that are left out
        # take() would end each pass before the operations below have ended it: what they draw for
        # the next one would depend on how far TensorFlow has read ahead.
        parts = own.enumerate().filter(lambda number, _: number < full).map(counted)
        return parts.apply(tf.data.experimental.assert_cardinality(full))
    if not rest or task < rest:
        return own.enumerate().map(counted)

    def with_none(number: tf.Tensor, data: Any) -> Dataset:
        """Return a batch, and behind the last one a row that does not count."""
        none = map_tensors(lambda value: value[:1], data)
        empty = Dataset.from_tensors((none, tf.constant(0, tf.int64), tf.constant(rest, tf.int64)))
        following = tf.cast(tf.equal(number, full - 1), tf.int64)
        return Dataset.from_tensors(counted(number, data)).concatenate(empty.take(following))

    return own.enumerate().flat_map(with_none)
