"""Random numbers on several replicas.

Each replica draws numbers of its own, e.g. for dropout: those of Keras's seed generators, which all
replicas have in the same state, with the replica's number mixed in. The first replica draws what
one worker draws.

With ``--same-random`` every replica draws the numbers of all rows of the global batch and takes
those of its own rows. So what draws numbers for each row, such as dropout, augmentation and noise,
computes what it computes on one worker. Each replica draws as many numbers as one worker would.
Random operations of a traced step that are not known to be drawn so are refused.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.keras_compat import keras_random
from distlaunch_trainer.task import explain

from . import step_context
from .all_reduce import replica_id
from .step_context import StepRows

# Scopes of operations, by which they are known in the graph of a step.
_SAME = "distlaunch_same_random"  # on any number of replicas
_BY_KERAS = "distlaunch_keras_random"  # in place of TensorFlow's
_SHUFFLED = "distlaunch_shuffled_rows"

_first = SimpleNamespace()  # states of generators when this task's first replica is traced


def install(*, same: bool = False) -> None:
    """Have each replica draw numbers of its own, or all draw those of the global batch's rows."""
    keras_random.install(_next_of_replica, same=same)
    if same:
        keras_random.replace_draws(_for_global_batch)


def refuse_other_draws(graph: tf.Graph) -> None:
    """Refuse, with ``--same-random``, what a traced step of several replicas draws otherwise."""
    for operation in keras_random.draws_in(graph):
        if _SAME not in operation.name or _SHUFFLED in operation.name:
            raise ModelError(
                f"--same-random does not hold for {_described(operation)}: write "
                f"keras.random.normal, truncated_normal, uniform, randint, categorical or dropout, "
                f"of one number or of a shape that begins with the rows of the batch, and not in a "
                f"loop over them; or leave --same-random out"
            )


def notes(graph: tf.Graph, replicas: int) -> Iterator[str]:
    """Yield warnings about what a traced step draws: who reads the weights may not expect it."""
    draws = list(keras_random.draws_in(graph))
    if by_keras := _by_location(draw for draw in draws if _BY_KERAS in draw.name):
        yield (
            f"with --same-random tf.random draws by keras.random ({by_keras}): the same on any "
            f"number of workers, and other numbers than without distlaunch"
        )
    if replicas == 1 or keras_random.is_same():
        return
    if drawn := _by_location(draws):
        yield (
            f"the model draws random numbers ({drawn}), each replica its own, so the weights "
            f"depend on the number of replicas; --same-random draws those of one worker"
        )


def _described(operation: tf.Operation) -> str:
    location = explain.operation_location(operation)
    name = operation.name.removeprefix("while/")
    return f"{operation.type}, {name}{f' ({location})' if location else ''}"


def _by_location(draws: Iterable[tf.Operation]) -> str:
    """Return the types of operations with lines of the project that call for them."""
    types = {explain.operation_location(each, is_direct=True): each.type for each in draws}
    return "; ".join(f"{kind}, {place}" for place, kind in types.items() if place)


def seed_replica() -> None:
    """Let ``tf.random`` draw numbers of this replica in the rest of its part of a step.

    Within a task TensorFlow does so by the number of each operation of a graph. Python's and
    numpy's numbers are constants of the graph: those of the task's first replica.
    """
    graph = tf.compat.v1.get_default_graph()
    if not graph.building_function:
        return
    context = tf.distribute.get_replica_context()
    replica = int(tf.get_static_value(replica_id()))
    if context.num_replicas_in_sync > 1:
        local_replicas = len(context.strategy.extended.worker_devices)
        _draw_as_first_replica(is_first=replica % local_replicas == 0)
    if graph.seed is not None and not keras_random.is_same():
        graph.seed = keras_random.replica_seed(graph.seed, replica)


def _draw_as_first_replica(*, is_first: bool) -> None:
    """Set the state of Python's and numpy's generators to that of this task's first replica."""
    if is_first:
        _first.of_python, _first.of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    else:
        random.setstate(_first.of_python)
        np.random.set_state(_first.of_numpy)  # noqa: NPY002


def _next_of_replica(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Return Keras's function for a generator's next seed, with the replica's number mixed in.

    Without waiting for the rows, Keras would count a draw in a step that finds the end of the data.
    """

    def draw_for_replica(generator: Any, ordered: bool = True) -> Any:
        rows = _divided_rows()
        with tf.control_dependencies([] if rows is None else [rows.local_rows]):
            seed = draw(generator, ordered)
        is_alone = not keras_random.is_in_one_of_several_replicas()
        if keras_random.is_same() or is_alone or step_context.current().simulated:
            return seed
        distance = tf.constant([keras_random.PRIME, 0], seed.dtype)
        return seed + tf.cast(replica_id(), seed.dtype) * distance

    return draw_for_replica


def _divided_rows() -> StepRows | None:
    """Return the replica's rows of the global batch whose step is traced, if any is."""
    rows = step_context.current().rows
    return rows if rows is not None and rows.is_divided else None


def _for_global_batch(name: str, draw: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that draws in a step for the global batch, by that function's name."""

    def in_step(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            rows = _divided_rows() if keras_random.is_same() else None
            if rows is None:
                return draw(*args, **options)
            options.pop("name", None)  # may be of the whole graph, and so not of the scope
            return function(rows, *args, **options)

        return call

    def by_shape(rows: StepRows, shape: Any, *args: Any, **options: Any) -> Any:
        whole, own, scope = _whole(rows, shape)
        with scope:
            numbers = draw(whole, *args, **options)
            return numbers if own is None else tf.gather(numbers, own)

    def by_logits(rows: StepRows, logits: Any, *args: Any, **options: Any) -> Any:
        whole, own, scope = _whole(rows, tf.shape(logits))
        with scope:
            if own is None:
                return draw(logits, *args, **options)
            zeros = tf.zeros(whole, logits.dtype)
            logits = tf.tensor_scatter_nd_update(zeros, own[:, None], logits)
            return tf.gather(draw(logits, *args, **options), own)

    def advance(rows: StepRows, generator: tf.random.Generator, shape: Any) -> Any:
        whole, _, scope = _whole(rows, shape)
        with scope:
            return draw(generator, whole)

    def by_keras(_: StepRows, *args: Any, **options: Any) -> Any:
        with tf.name_scope(_BY_KERAS):
            return _DRAWS_OF_KERAS[name](*args, **options)

    def shuffle(_: StepRows, x: Any, axis: int = 0, seed: Any = None) -> Any:
        with nullcontext() if x.shape[axis] else tf.name_scope(_SHUFFLED):
            return draw(x, axis, seed)

    functions = {
        "stateless_multinomial": by_logits,
        "_prepare_key_counter": advance,
        "_preprocess_key": lambda *arguments: arguments[-1],  # the key without the replica's number
        "shuffle": shuffle,
        **dict.fromkeys(_DRAWS_OF_KERAS, by_keras),
    }
    return in_step(functions.get(name, by_shape))


# In place of operations with a state of their own, which starts over in each traced function.
_DRAWS_OF_KERAS: dict[str, Callable[..., Any]] = {
    "random_standard_normal": lambda shape, dtype, **_: keras.random.normal(shape, dtype=dtype),
    "truncated_normal": lambda shape, dtype, **_: keras.random.truncated_normal(shape, dtype=dtype),
    "random_uniform": lambda shape, dtype, **_: keras.random.uniform(shape, dtype=dtype),
    "random_uniform_int": lambda shape, minval, maxval, **_: keras.random.randint(
        shape, minval, maxval, dtype=minval.dtype
    ),
    "multinomial": lambda logits, num_samples, output_dtype, **_: keras.random.categorical(
        logits, num_samples, dtype=output_dtype
    ),
}


def _whole(rows: StepRows, shape: Any) -> tuple[Any, Any, AbstractContextManager[Any]]:
    """Return the shape to draw, a replica's indices in it if it is of the rows, and a scope.

    The scope is one for what is the same on any number of replicas.
    """
    shape = tf.convert_to_tensor(shape)
    sizes = tf.get_static_value(shape, partial=True)
    if sizes is None or (len(sizes) and _may_be_rows(sizes[0], rows)):
        return *_divide(shape, rows), tf.name_scope(_SAME)
    # Another dimension may be the rows, and so may be what a loop runs over.
    is_known = None not in sizes and not keras_random.is_in_loop_after(rows.local_rows)
    return shape, None, tf.name_scope(_SAME) if is_known else nullcontext()


def _may_be_rows(size: int | None, rows: StepRows) -> bool:
    return size is None or bool(rows.size and size % rows.size == 0)


def _divide(shape: Any, rows: StepRows) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the shape for the global batch, and the indices of a replica's part of it.

    A layer may have put several parts of a row, such as time steps, where rows are, or several
    batches one after the other, such as generated and real images.
    """
    follow_each_other = _has_concatenated_rows(shape)
    shape = tf.cast(shape, tf.int64)
    local = tf.maximum(rows.local_rows, 1)  # without rows there is a placeholder
    total = tf.maximum(rows.global_rows, 1)
    parts, rest = shape[0] // local, shape[0] % local
    size = tf.where(rest == 0, parts * total, shape[0])
    number = tf.range(shape[0])
    first = tf.cast(replica_id(), tf.int64)
    if follow_each_other:
        own = number // local * total + first + number % local * rows.replicas
    else:
        row, part = number // tf.maximum(parts, 1), number % tf.maximum(parts, 1)
        own = (first + row * rows.replicas) * parts + part
    own = tf.minimum(tf.where(rest == 0, own, number), size - 1)
    return tf.concat([[size], shape[1:]], 0), own


def _has_concatenated_rows(shape: tf.Tensor) -> bool:
    """Return whether a shape is computed of tensors that a step concatenates along their rows."""
    pending, seen = [shape.op], set()
    while pending:
        operation = pending.pop()
        if operation in seen:
            continue
        seen.add(operation)
        if operation.type == "ConcatV2" and tf.get_static_value(operation.inputs[-1]) == 0:
            sizes = operation.outputs[0].shape
            if sizes.rank and sizes[0] is None:  # no shape, which is concatenated, too
                return True
        pending += [each.op for each in operation.inputs if each.dtype != tf.resource]
    return False
