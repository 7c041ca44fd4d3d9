"""A user's tf.data.Dataset in the trainer and alone: `python benchmarks/user_dataset.py`.

Images of 128x128x3 in memory, float32, in batches of 32. Measured are the rows of the global
batches per second: iterated plainly, as the input of one worker, and as that of the first of two
workers, which takes every second row of each batch (no limit). Then JPEGs, which a core decodes: by
one worker, and by the first of two, which decodes its own rows alone; and the same behind a filter,
where each decodes all. All alternate; the medians and the ratios are printed, and a ratio below its
limit is exit code 1.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from common import Limit, alternate, options, show, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "trainer_skeleton/runtime"))
from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.input.user_data.user_batches import Opening, open_batches
from distlaunch_trainer.keras_compat import fit_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

IMAGES, SHAPE, BATCH = 1024, (128, 128, 3), 32
PICTURES = 64
STEPS = 8 * IMAGES // BATCH
LIMITS = (
    Limit("one worker", "plainly", least=0.9),
    Limit("JPEG, two workers", "JPEG, one worker", least=1.7),
    Limit("filtered JPEG, two workers", "filtered JPEG, one worker", least=0.9),
)


def main() -> int:
    """Measure and print; return 1 if a limit does not hold."""
    rounds = options("rows per second of a user's data set", rounds=9).parse_args().rounds
    images = np.random.default_rng(1).random((IMAGES, *SHAPE), np.float32)
    rows = tf.data.Dataset.from_tensor_slices((images, np.arange(IMAGES)))
    batches = rows.batch(BATCH, drop_remainder=True)
    ways: dict[str, Callable[[], Iterable[Any]]] = {
        "plainly": batches.repeat,
        "one worker": partial(worker_input, batches, 1),
        "two workers": partial(worker_input, batches, 2),
    }
    encoded = [tf.io.encode_jpeg(np.uint8(255 * image)).numpy() for image in images[:PICTURES]]
    pictures = tf.data.Dataset.from_tensor_slices(encoded).repeat(IMAGES // PICTURES)
    decoded = pictures.map(tf.io.decode_jpeg).batch(BATCH)
    filtered = pictures.map(tf.io.decode_jpeg).filter(lambda image: tf.size(image) > 0)
    filtered = filtered.apply(tf.data.experimental.assert_cardinality(IMAGES)).batch(BATCH)
    for workers, name in ((1, "one worker"), (2, "two workers")):
        ways[f"JPEG, {name}"] = partial(worker_input, decoded, workers)
        ways[f"filtered JPEG, {name}"] = partial(worker_input, filtered, workers)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # of each worker's own core
    measured = {name: partial(rows_per_second, way) for name, way in ways.items()}
    figures = alternate(measured, rounds)
    show(figures, "rows/s")
    return verdict(figures, *LIMITS)


def worker_input(batches: tf.data.Dataset, workers: int) -> Iterable[Any]:
    """Return the input of the first of some workers, as the trainer shards it."""
    peers = tuple(f"worker:{number}" for number in range(workers))
    cluster: Any = SimpleNamespace(
        replicas=workers,
        local_replicas=1,
        replica_ids=range(1),
        role=Role(peers[0], peers),
        all_equal=lambda _: True,
        needs_static_shapes=False,
        rendezvous=SimpleNamespace(
            peers=peers,
            exchange=lambda _, value, __: [value] * workers,
        ),
    )
    report: Any = SimpleNamespace(log=str, warn=str)
    opening = Opening(cluster, report, "the data", "", steps=STEPS, repeats=True)
    data = open_batches(fit_calls.data_adapter(batches), batches, opening)
    return data.parts.iterator()


def rows_per_second(open_input: Callable[[], Iterable[Any]], _: int) -> float:
    """Return the rows of global batches per second."""
    batches = iter(open_input())
    next(batches)
    started = time.perf_counter()
    for _ in range(STEPS - 1):
        next(batches)
    return (STEPS - 1) * BATCH / (time.perf_counter() - started)


if __name__ == "__main__":
    sys.exit(main())
