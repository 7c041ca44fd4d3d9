"""Random numbers of Keras on several replicas, with the private names that this needs.

Each replica draws numbers of its own, e.g. for dropout: those of Keras's seed generators, which all
replicas have in the same state, with the replica's number mixed in. The first replica draws what
one worker draws. With ``same_random`` the numbers are mixed with nothing.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import random as backend_random
from keras.src.random import seed_generator

_PRIME = 1_000_000_007  # between the seeds of two replicas
# https://www.tensorflow.org/api_docs/python/tf/raw_ops
SEEDED_OPERATIONS = {
    *("Multinomial", "ParameterizedTruncatedNormal", "RandomGamma", "RandomPoissonV2"),
    *("RandomShuffle", "RandomStandardNormal", "RandomUniform", "RandomUniformInt"),
    "TruncatedNormal",
}
"""Operations that draw numbers from a state of their own, which a seed begins."""


class _Draws:
    """What `install` has set for this process."""

    def __init__(self) -> None:
        self.are_same = False
        self.generator: keras.random.SeedGenerator | None = None


_draws = _Draws()
_step = threading.local()  # a replica is traced in a thread of its own


def install(*, same: bool = False) -> None:
    """Have each replica draw numbers of its own, or all replicas the same.

    Unseeded numbers come from one generator for all threads: Keras has one in each thread, and
    replicas are traced in threads that cannot create variables.
    """
    _draws.are_same = same
    if not hasattr(seed_generator.SeedGenerator.next, "__wrapped__"):
        seed_generator.SeedGenerator.next = _next_of_replica(seed_generator.SeedGenerator.next)
        seed_generator.global_seed_generator = _shared(seed_generator.global_seed_generator)


def replica_seed(seed: int, replica: int) -> int:
    """Return the seed of a replica's own numbers."""
    return (seed + replica * _PRIME) % 2**31


def is_same() -> bool:
    """Return whether all replicas draw the same numbers."""
    return _draws.are_same


def global_generator() -> keras.random.SeedGenerator:
    """Return the generator of unseeded numbers; to be called in the strategy's scope.

    Keras draws its seed from Python's generator, whose later numbers, such as the order of a
    `PyDataset`, stay those of a run that needs no generator.
    """
    state = random.getstate()
    try:
        return seed_generator.global_seed_generator()
    finally:
        random.setstate(state)


def global_state() -> list[keras.Variable]:
    """Return the state of the generator of unseeded numbers, or nothing if there were none."""
    return [_draws.generator.state] if _draws.generator else []


def replace_draws(wrap: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace the functions that draw numbers for Keras; `wrap` is given a name and a function."""
    for name in ("normal", "uniform", "truncated_normal", "randint", "dropout", "categorical"):
        function = getattr(backend_random, name)
        if not hasattr(function, "__wrapped__"):
            setattr(backend_random, name, wraps(function)(wrap(name, function)))


@contextmanager
def replica_draws(rows: tf.Tensor | None) -> Iterator[None]:
    """Let ``tf.random`` draw numbers of this replica in here, and Keras draw when there are rows.

    Within a task TensorFlow does so by the number of each operation of a graph. Without waiting
    for the rows, Keras would count a draw in a step that finds the end of the data.
    """
    graph = tf.compat.v1.get_default_graph()
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    if graph.building_function and graph.seed is not None and not _draws.are_same:
        graph.seed = replica_seed(graph.seed, int(tf.get_static_value(replica)))
    _step.rows = rows
    try:
        yield
    finally:
        _step.rows = None


def unsaved_draws(graph: tf.Graph) -> list[str]:
    """Return the operations of a traced step that draw numbers from a state of their own.

    TensorFlow does not return that state, so no checkpoint holds it.
    """
    functions = graph.as_graph_def().library.function
    return sorted(
        {node.op for function in functions for node in function.node_def} & SEEDED_OPERATIONS
    )


def _in_one_of_several_replicas() -> bool:
    context = tf.distribute.get_replica_context()
    return context is not None and context.num_replicas_in_sync > 1


def _next_of_replica(draw: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(draw)
    def draw_for_replica(generator: Any, ordered: bool = True) -> Any:
        rows = getattr(_step, "rows", None)
        with tf.control_dependencies([] if rows is None else [rows]):
            seed = draw(generator, ordered)
        if _draws.are_same or not _in_one_of_several_replicas():
            return seed
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return seed + tf.cast(replica, seed.dtype) * tf.constant([_PRIME, 0], seed.dtype)

    return draw_for_replica


def _shared(make: Callable[[], Any]) -> Callable[[], Any]:
    @wraps(make)
    def shared() -> Any:
        if _draws.generator is None or not _in_one_of_several_replicas():
            _draws.generator = make()  # another one after set_random_seed() or clear_session()
        return _draws.generator

    return shared
