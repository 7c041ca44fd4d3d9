"""Generators of random numbers of Keras and TensorFlow: their private names, and their state."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from functools import wraps
from types import SimpleNamespace
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common.global_state import get_global_attribute, set_global_attribute
from keras.src.backend.tensorflow import random as backend_random
from keras.src.random import seed_generator
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops import gen_random_ops, gen_stateless_random_ops
from tensorflow.python.ops import gen_stateless_random_ops_v2 as gen_stateless_v2
from tensorflow.python.ops.control_flow_v2_func_graphs import WhileBodyFuncGraph

_OF_REPLICAS = "distlaunch_seed_generator"  # the name of an attribute of Keras's global state

PRIME = 1_000_000_007
"""The distance between the seeds of two replicas."""

# https://www.tensorflow.org/api_docs/python/tf/raw_ops
SEEDED_OPERATIONS = {
    *("Multinomial", "ParameterizedTruncatedNormal", "RandomGamma", "RandomPoissonV2"),
    *("RandomShuffle", "RandomStandardNormal", "RandomUniform", "RandomUniformInt"),
    "TruncatedNormal",
}
"""Operations that draw numbers from a state of their own, which a seed begins."""

# Of ``tf.random.Generator``, images, candidates of a loss, and ``Dataset.random``. A
# StatefulPartitionedCall is any function that reads a state, such as a lookup table.
_OTHER_RANDOM = re.compile(
    r"^Stateful(?!PartitionedCall)|^RngReadAndSkip|^SampleDistorted|CandidateSampler$|^RandomDataset"
)
_BY_SEED = re.compile(r"^Stateless(?!While$|If$|Case$|RandomGet)")

# The functions that all of Keras and TensorFlow make random operations with, by their names.
_FUNCTIONS = (
    (gen_stateless_v2, "stateless_random_normal_v2 stateless_truncated_normal_v2"),
    (gen_stateless_v2, "stateless_random_uniform_v2 stateless_random_uniform_int_v2"),
    (gen_stateless_v2, "stateless_random_uniform_full_int_v2"),
    (gen_stateless_random_ops, "stateless_multinomial"),
    (gen_random_ops, "random_standard_normal truncated_normal random_uniform random_uniform_int"),
    (gen_random_ops, "multinomial"),
    (tf.random.Generator, "_prepare_key_counter _preprocess_key"),
    (backend_random, "shuffle"),
)

_draws = SimpleNamespace(are_same=False, generator=None)  # what `install` sets for this process


def install(wrap: Callable[[Callable[..., Any]], Callable[..., Any]], *, same: bool) -> None:
    """Replace the function that returns a generator's next seed, and share the unseeded generator.

    Unseeded numbers come from one generator for all threads: Keras has one in each thread, and
    replicas are traced in threads that cannot create variables. `wrap` is given Keras's function,
    and returns the one to use; `same` is whether all replicas draw the same numbers.
    """
    _draws.are_same = same
    if not hasattr(seed_generator.SeedGenerator.next, "__wrapped__"):
        seed_generator.SeedGenerator.next = wraps(seed_generator.SeedGenerator.next)(
            wrap(seed_generator.SeedGenerator.next)
        )
        seed_generator.global_seed_generator = _shared(seed_generator.global_seed_generator)


def replica_seed(seed: int, replica: int) -> int:
    """Return the seed of a replica's own numbers."""
    return (seed + replica * PRIME) % 2**31


def is_same() -> bool:
    """Return whether all replicas draw the same numbers."""
    return _draws.are_same


def global_generator() -> keras.random.SeedGenerator:
    """Return the generator of unseeded numbers; to be called in the strategy's scope.

    Until Keras makes its own, at the first draw of the script or of a model that is built, it is
    one for draws of replicas alone. So Keras's has the seed of a run without `--same-random`, and
    Python's generator, which that comes from, has the same numbers afterwards.
    """
    names = seed_generator.GLOBAL_SEED_GENERATOR, _OF_REPLICAS
    made = next(filter(None, map(get_global_attribute, names)), None)
    if made is None:
        state = random.getstate()
        made = keras.random.SeedGenerator(name="seed_generator")  # counted in no automatic name
        random.setstate(state)
        set_global_attribute(_OF_REPLICAS, made)
    _draws.generator = made
    return made


def global_state() -> list[keras.Variable]:
    """Return the state of the generator of unseeded numbers, or nothing if there were none."""
    return [_draws.generator.state] if _draws.generator else []


def replace_draws(wrap: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace the functions that make random operations; `wrap` is given a name and a function."""
    for owner, names in _FUNCTIONS:
        for name in names.split():
            function = getattr(owner, name)
            if not hasattr(function, "__wrapped__"):
                setattr(owner, name, wraps(function)(wrap(name, function)))


def unsaved_draws(graph: tf.Graph) -> list[str]:
    """Return the operations of a traced step that draw numbers from a state of their own.

    TensorFlow does not return that state, so no checkpoint holds it.
    """
    return sorted({node.op for node in operations_in(graph)} & SEEDED_OPERATIONS)


def is_random(operation: str) -> bool:
    """Return whether an operation of this name draws other numbers each time."""
    return operation in SEEDED_OPERATIONS or bool(_OTHER_RANDOM.search(operation))


def operations_in(graph: tf.Graph) -> Iterator[Any]:
    """Yield the operations (``NodeDef``) of a graph and of the functions that it calls."""
    definition = graph.as_graph_def()
    yield from definition.node
    for function in definition.library.function:
        yield from function.node_def


def draws_in(graph: Any, seen: frozenset[str] = frozenset()) -> Iterator[tf.Operation]:
    """Yield the random operations of a traced function and of those that it calls."""
    for operation in graph.get_operations():
        if is_random(operation.type) or _BY_SEED.search(operation.type):
            yield operation
        for attribute in operation.op_def.attr:
            if attribute.type == "func":
                name = operation.get_attr(attribute.name).name
                # Functions of TensorFlow 1, such as in CTC losses, have no graph of operations.
                inner = getattr(graph._get_function(name), "graph", None)  # noqa: SLF001
                if name not in seen and inner is not None:
                    yield from draws_in(inner, seen | {name})


def is_in_loop_after(value: tf.Tensor) -> bool:
    """Return whether a loop is traced in the function that computes a value."""
    graph = tf.compat.v1.get_default_graph()
    while isinstance(graph, FuncGraph) and graph is not value.graph:
        if isinstance(graph, WhileBodyFuncGraph):
            return True
        graph = graph.outer_graph
    return False


def is_in_one_of_several_replicas() -> bool:
    """Return whether a part of a step is traced that several replicas have."""
    context = tf.distribute.get_replica_context()
    return context is not None and context.num_replicas_in_sync > 1


def _shared(make: Callable[[], Any]) -> Callable[[], Any]:
    @wraps(make)
    def shared() -> Any:
        if _draws.generator is None or not is_in_one_of_several_replicas():
            _draws.generator = make()  # another one after set_random_seed() or clear_session()
        return _draws.generator

    return shared
