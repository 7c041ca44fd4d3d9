"""A step on a small batch, computed as one worker does and then as two replicas do.

The replicas are computed one after the other in this process, without a change to any variable.
What replicas exchange they take from the batch as a whole. Batch normalizations use the statistics
of both, and each row has the same random numbers: what each replica draws is another matter, see
``random_draws``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.keras_compat import simulated_calls
from distlaunch_trainer.task.explain import user_location

from . import step_context
from .custom_steps import replaced_updates
from .losses import normalize_globally
from .normalization import moments_of
from .step_context import StepRows

ROWS = 5
PARTS = (range(0, ROWS, 2), range(1, ROWS, 2))
_SCALES = [1.0, 0.2, 0.8, 0.1, 0.6]  # of the rows: those of the parts are not alike
# Of a dimension that may have any: of an image, or the positions that a table may have few of.
_ANY_SIZES = 64, 8


@dataclass
class SimulatedReplica:
    """A replica with some rows of the batch, and what it computed."""

    numbers: range  # of its rows
    whole: SimulatedReplica | None = None  # the replica that had all rows; None: this is it
    exchanged: list[list[tf.Tensor]] = field(default_factory=list)
    drawn: list[Any] = field(default_factory=list)
    # Of the layers, as they end, with figures of the rows of their inputs and outputs.
    layer_calls: list[tuple[keras.Layer, list[np.ndarray], list[np.ndarray]]] = field(
        default_factory=list
    )
    assigned: list[tuple[keras.Variable, Any]] = field(default_factory=list)  # and to what
    added: dict[Any, list[Any]] = field(default_factory=dict)  # losses of add_loss(), by its calls
    losses: dict[Any, list[Any]] = field(default_factory=dict)  # of compile(), with their arguments
    results: list[tuple[str, list[Any]]] = field(default_factory=list)  # of the step, and its lines

    @property
    def rows(self) -> StepRows:
        counts = (tf.constant(n, tf.int64) for n in (len(self.numbers), ROWS))
        return StepRows(*counts, replicas=len(PARTS), may_be_empty=False)

    def exchange(self, values: list[tf.Tensor]) -> list[tf.Tensor]:
        """Return the sums over the replicas, whose gradients are summed likewise."""

        @tf.custom_gradient
        def total(*own: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., list[tf.Tensor]]]:
            return self._sums(own), lambda *upstream: self._sums(upstream)

        return list(total(*values))

    def _sums(self, own: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        self.exchanged.append([tf.identity(value) for value in own])
        whole = self.whole or self
        return whole.exchanged[len(self.exchanged) - 1]

    def draw(self, numbers: tf.Tensor) -> tf.Tensor:
        """Return random numbers that each row has on all replicas.

        They are all the same where the first dimension is not that of the rows: it may be any.
        """
        if step_context.current().simulated is not self or not tf.executing_eagerly():
            return numbers  # of another thread, or of data that are mapped
        self.drawn.append(numbers.numpy())
        drawn = (self.whole or self).drawn
        of_whole = drawn[min(len(self.drawn), len(drawn)) - 1]
        if of_whole.shape[:1] == (ROWS,) and len(numbers) in {ROWS, len(self.numbers)}:
            values = of_whole if len(numbers) == ROWS else of_whole[self.numbers]
        else:
            values = np.full(numbers.shape, np.max(of_whole, initial=0))
        return tf.constant(values, numbers.dtype)


def simulate(
    model: keras.Model, spec: Any, step: Callable[[Any], None], *, weighs_gradients: bool
) -> list[SimulatedReplica]:
    """Return the replica with the whole batch, and then those with parts of it, after a step."""
    *more, least = _ANY_SIZES
    for size in more:
        with suppress(tf.errors.OpError, ValueError):
            return _simulate(model, spec, step, size, weighs_gradients=weighs_gradients)
    return _simulate(model, spec, step, least, weighs_gradients=weighs_gradients)


def _simulate(
    model: keras.Model,
    spec: Any,
    step: Callable[[Any], None],
    size: int,
    *,
    weighs_gradients: bool,
) -> list[SimulatedReplica]:
    data = tf.nest.map_structure(partial(made_up, np.random.default_rng(0), size=size), spec)
    replicas = _replicas()
    strategy = tf.distribute.get_strategy()
    ids = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(context.replica_id_in_sync_group)
    )
    first = int(strategy.experimental_local_results(ids)[0])  # of this task
    with ExitStack() as stack:
        stack.enter_context(tf.distribute.ReplicaContext(strategy, first))
        stack.enter_context(simulated_calls.eager_functions())
        stack.enter_context(simulated_calls.replaced(keras.Layer, "__call__", _recording))
        stack.enter_context(simulated_calls.replaced_moments(_global_moments))
        stack.enter_context(replaced_updates(_record_update))
        for replica in replicas:
            rows = tf.nest.map_structure(partial(rows_of, replica.numbers), data)
            with (
                simulated_calls.unchanged_state(model, replica.assigned.append),
                simulated_calls.replaced_draws(replica.draw),
                step_context.extended(
                    simulated=replica, weighs_gradients=weighs_gradients, added_losses=[]
                ),
                normalize_globally(replica.rows),
            ):
                step(rows)
    return replicas


def simulate_loss(
    model: keras.Model, loss: Callable[..., Any], arguments: Sequence[Any], mark: float
) -> list[Any]:
    """Return a loss of the whole batch and of its parts, where some targets and weights are a mark.

    Each is a list of one value; none are returned if the loss refuses the mark.
    """
    targets, outputs, weights = arguments
    marked = partial(tf.nest.map_structure, partial(_marked, mark))
    data = marked(targets), outputs, weights if mark else marked(weights)
    values = []
    for replica in _replicas():

        def own(value: Any, numbers: range = replica.numbers) -> Any:
            rows = rows_of(numbers, value)
            mask = None if value is None else keras_compat.mask_of(value)
            if mask is not None:
                keras_compat.set_mask(rows, rows_of(numbers, mask))
            return rows

        with (
            simulated_calls.eager_functions(),
            simulated_calls.unchanged_state(model),
            simulated_calls.without_assignments(),
            step_context.extended(simulated=replica),
            normalize_globally(replica.rows),
        ):
            try:
                values.append([loss(*tf.nest.map_structure(own, data))])
            except Exception:  # noqa: BLE001 - of the user's code
                return []
    return values


def _replicas() -> list[SimulatedReplica]:
    whole = SimulatedReplica(range(ROWS))
    return [whole, *(SimulatedReplica(numbers, whole) for numbers in PARTS)]


def _marked(mark: float, value: Any) -> Any:
    """Return a tensor of numbers with a mark in some places of each row, in fewer of later rows."""
    is_integer = getattr(value, "dtype", tf.string).is_integer
    if not isinstance(value, tf.Tensor) or not (is_integer or value.dtype.is_floating):
        return value
    if not value.shape.rank or (is_integer and not np.isfinite(mark)):
        return value
    rows = tf.range(ROWS)[:, tf.newaxis]
    places = (tf.range(tf.size(value) // ROWS) + rows) % (rows + 2) == 0
    return tf.where(tf.reshape(places, value.shape), tf.cast(mark, value.dtype), value)


def made_up(random: np.random.Generator, spec: Any, size: int = _ANY_SIZES[0]) -> Any:
    """Return values that most models take: floats from 0 to 1, the integers 0 and 1."""
    if spec is None:
        return None
    if not isinstance(spec, tf.TypeSpec):
        spec = tf.type_spec_from_value(spec)
    shape = [size if each is None else each for each in spec.shape]
    shape[:1] = [ROWS] * len(shape[:1])
    if isinstance(spec, tf.RaggedTensorSpec) and spec.ragged_rank == 1:
        lengths = np.arange(ROWS) % 3 + 1
        values = _numbers(random, [int(lengths.sum()), *shape[2:]], spec.dtype)
        return tf.RaggedTensor.from_row_lengths(values, lengths)
    numbers = _numbers(random, shape, spec.dtype)
    return tf.sparse.from_dense(numbers) if isinstance(spec, tf.SparseTensorSpec) else numbers


def _numbers(random: np.random.Generator, shape: list[int], dtype: tf.DType) -> tf.Tensor:
    if dtype.is_floating:
        numbers = random.uniform(size=shape)
        if len(numbers.shape) and len(numbers) == ROWS:
            numbers *= np.reshape(_SCALES, [ROWS] + [1] * (len(shape) - 1))
        if len(shape) > 2:
            numbers[0, -1] = 0  # a time step that is masked
        return tf.cast(numbers, dtype)
    numbers = tf.constant(random.integers(0, 2, shape))
    return tf.strings.as_string(numbers) if dtype == tf.string else tf.cast(numbers, dtype)


def rows_of(numbers: range, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, tf.SparseTensor):
        return tf.sparse.from_dense(rows_of(numbers, tf.sparse.to_dense(value)))
    return tf.gather(value, list(numbers)) if value.shape.rank else value


def _recording(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls a layer and records that, where a step is simulated."""

    def recorded(layer: keras.Layer, *args: Any, **options: Any) -> Any:
        outputs = call(layer, *args, **options)
        if replica := step_context.current().simulated:
            replica.layer_calls.append((layer, _figures([args, options]), _figures(outputs)))
        return outputs

    return recorded


def _figures(values: Any) -> list[np.ndarray]:
    """Return a number for each row of tensors, which any change to the row changes."""
    figures = []
    for value in tf.nest.flatten(values, expand_composites=True):
        if tf.is_tensor(value) and value.shape.rank and value.dtype.is_floating:
            rows = tf.reshape(tf.cast(value, tf.float64), [value.shape[0], -1])
            waves = 1.1 + tf.cos(tf.range(rows.shape[1], dtype=tf.float64))
            figures.append(tf.linalg.matvec(rows, waves).numpy())
    return figures


def _global_moments(alone: Callable[..., Any]) -> Callable[..., Any]:
    return lambda layer, inputs, mask: moments_of(layer, partial(alone, layer))(inputs, mask)


def _record_update(_: Any, __: Any, gradients: list[Any], ___: Any) -> None:
    """Record the gradients that an optimizer is given, in place of an update."""
    where = user_location(sys._getframe(1), skips_package=True)  # noqa: SLF001
    results = [None if g is None else _projected(tf.convert_to_tensor(g)) for g in gradients]
    line = f" ({where})" if where else ""
    step_context.current().simulated.results.append((line, results))


def _projected(gradient: tf.Tensor) -> tf.Tensor:
    """Return three numbers that are linear in a gradient, to compare it by."""
    flat = tf.reshape(gradient, [1, -1])
    places = tf.range(tf.size(flat), dtype=tf.float32)
    waves = tf.stack([tf.cos(places * (n + 1)) for n in range(3)], 1)
    return tf.matmul(flat, tf.cast(waves, flat.dtype))[0]
