"""What is copied to a GPU ahead."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer import Arrays
from distlaunch_trainer.input.order.pipeline import Pipeline
from distlaunch_trainer.input.order.plan import BatchPlan


@pytest.mark.parametrize(
    ("x", "replicas", "expected"),
    [
        (np.eye(8), 1, "prefetched"),
        (np.eye(8), 2, "distributed to devices"),
        (np.array(["a"] * 8), 1, "plain"),
        (np.array(["a"] * 8), 2, "plain"),
    ],
)
def test_batches_of_numbers_are_copied_to_a_gpu_ahead(cluster, monkeypatch, x, replicas, expected):
    made = ["plain"]

    def distribute(create, options):
        made.append(f"distributed{' to devices' * options.experimental_fetch_to_device}")
        return create(None)

    def prefetch(device):
        assert device == "/device:GPU:0"
        made.append("prefetched")
        return lambda batches: batches

    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [kind])
    monkeypatch.setattr(tf.data.experimental, "prefetch_to_device", prefetch)
    task = SimpleNamespace(
        replicas=replicas,
        local_replicas=1,
        needs_static_shapes=False,
        replica_ids=range(1),
        strategy=SimpleNamespace(distribute_datasets_from_function=distribute),
    )
    items = Arrays(x).open(cluster, "")
    Pipeline(items, BatchPlan(8, 4, replicas)).batches(task)
    assert made[-1] == expected
