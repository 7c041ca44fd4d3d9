"""Any chain of operations: all tasks together read the batches of plain Keras in one process."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from distlaunch_trainer.errors import DataError, PlanError

from .reading import of_keras, of_project, of_script, together

Dataset = tf.data.Dataset
ROWS = 23


def generated():
    rows = lambda: iter(range(ROWS))  # noqa: E731
    return Dataset.from_generator(rows, output_signature=tf.TensorSpec([], tf.int64))


SOURCES = {
    "range": lambda: Dataset.range(ROWS),
    "slices": lambda: Dataset.from_tensor_slices(np.arange(ROWS)),
    "generator": generated,
}
ON_ROWS = {
    "map": lambda rows: rows.map(lambda n: n + 1),
    "several at once": lambda rows: rows.map(lambda n: n * 2, num_parallel_calls=2),
    "filter": lambda rows: rows.filter(lambda n: n % 5 > 0),
    "cache": lambda rows: rows.cache(),
    "shuffle": lambda rows: rows.shuffle(7),
    "shuffle all": lambda rows: rows.shuffle(60, seed=3),
    "take": lambda rows: rows.take(17),
    "repeat": lambda rows: rows.repeat(2),
    "interleave": lambda rows: rows.interleave(
        lambda n: Dataset.from_tensors(n).repeat(2), cycle_length=3
    ),
    "unbatch": lambda rows: rows.batch(3).unbatch(),
    "prefetch": lambda rows: rows.prefetch(2),
}
BATCH = {
    "batch": lambda rows, n: rows.batch(n),
    "drop_remainder": lambda rows, n: rows.batch(n, drop_remainder=True),
    "ragged": lambda rows, n: rows.map(lambda n: tf.fill([n % 3 + 1], n)).ragged_batch(n),
    "padded": lambda rows, n: rows.map(lambda n: tf.fill([n % 3 + 1], n)).padded_batch(n),
}
ON_BATCHES = {
    "map": lambda batches: batches.map(lambda batch: batch + 1),
    "cache": lambda batches: batches.cache(),
    "shuffle": lambda batches: batches.shuffle(3),
    "take": lambda batches: batches.take(3),
    "repeat": lambda batches: batches.repeat(2),
    "prefetch": lambda batches: batches.prefetch(1),
    "other batches": lambda batches: batches.unbatch().batch(6),
}


class Chain(NamedTuple):
    source: str
    on_rows: list[str]
    batch: str
    size: int
    on_batches: list[str]

    def make(self) -> Dataset:
        data = SOURCES[self.source]()
        for name in self.on_rows:
            data = ON_ROWS[name](data)
        data = BATCH[self.batch](data, self.size)
        for name in self.on_batches:
            data = ON_BATCHES[name](data)
        return data


CHAINS = st.builds(
    Chain,
    st.sampled_from(list(SOURCES)),
    st.lists(st.sampled_from(list(ON_ROWS)), max_size=4),
    st.sampled_from(list(BATCH)),
    st.integers(4, 9),
    st.lists(st.sampled_from(list(ON_BATCHES)), max_size=2),
)


@settings(max_examples=settings.default.max_examples // 4)  # each reads many data sets
@given(
    chain=CHAINS,
    tasks=st.integers(1, 4),
    replicas=st.integers(1, 2),
    passes=st.integers(1, 3),
    is_project=st.booleans(),
)
@example(
    chain=Chain("range", ["filter"], "drop_remainder", 8, []),
    tasks=2,
    replicas=1,
    passes=3,
    is_project=True,
)
@example(
    chain=Chain("range", ["shuffle", "take", "filter"], "batch", 4, []),
    tasks=2,
    replicas=2,
    passes=3,
    is_project=True,
)
@example(
    chain=Chain("range", ["shuffle", "repeat"], "batch", 4, ["repeat"]),
    tasks=2,
    replicas=1,
    passes=3,
    is_project=False,
)
def test_all_tasks_together_read_what_keras_reads(chain, tasks, replicas, passes, is_project):
    opened = of_project if is_project else of_script
    try:
        found = together(lambda task: opened(chain.make, task), tasks, replicas, passes)
    except (DataError, PlanError) as refused:
        assume("leaves" not in str(refused) and "no examples" not in str(refused))
        raise
    is_counted = is_project and chain.make().cardinality() == tf.data.UNKNOWN_CARDINALITY
    assert found == of_keras(chain.make, passes, is_counted=is_counted)
