"""What is read ahead of the batches that replicas take."""

from __future__ import annotations

import tensorflow as tf

from distlaunch_trainer.fit.batches import split_batches


def test_a_generator_is_read_ahead_as_in_one_process():
    """By the graph: a step in the thread that reads, before Keras's own prefetch."""
    spec = tf.TensorSpec([None], tf.int64)
    batches = tf.data.Dataset.from_generator(lambda: iter([[1, 2]]), output_signature=spec)
    parts = split_batches(batches.prefetch(3), 2, range(1), reads_ahead=False)
    assert next(iter(parts))[0]["distlaunch_data"].numpy().tolist() == [1]
    variant = tf.data.experimental.to_variant(parts)
    text = tf.raw_ops.DatasetToGraphV2(input_dataset=variant, external_state_policy=1).numpy()
    nodes = {node.op: node for node in tf.compat.v1.GraphDef.FromString(text).node}
    assert nodes["MapDataset"].attr["force_synchronous"].b
    assert "ParallelMapDatasetV2" not in nodes
    last = nodes["_Retval"].input[0].partition("/")[0]
    assert last == "PrefetchDataset"
