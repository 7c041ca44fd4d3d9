"""How replicas update metrics, so that the sums of their states are the states of one worker.

The state of most metrics is a sum over rows, and a replica adds its own. What is given one number
per step, such as the ``Mean`` of a loss, adds the replica's fraction of it. All others, such as a
function that returns one number for a batch or a maximum, get the rows of all replicas, and their
state is that of the first replica. Which these are is found by computing.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.keras_compat import simulated_calls
from distlaunch_trainer.task.explain import definition

from . import step_context
from .all_reduce import depends_on_batch, on_first_replica
from .gathered_rows import check_can_gather, gather_rows
from .simulation import PARTS, ROWS, made_up, rows_of
from .step_context import StepRows

_TOLERANCE = 1e-4

_adds_up: WeakKeyDictionary[keras.metrics.Metric, bool] = WeakKeyDictionary()
of_first_replica: WeakSet[keras.metrics.Metric] = WeakSet()
"""The metrics whose state is on the first replica, and 0 on all others."""


def watch(metrics: Iterable[keras.metrics.Metric]) -> None:
    """Have replicas update metrics as above."""
    for metric in metrics:
        if "update_state" not in vars(metric):
            metric.update_state = partial(_update_on_replica, metric, metric.update_state)


def _update_on_replica(metric: Any, update: Callable[..., Any], *args: Any, **options: Any) -> None:
    context = step_context.current()
    rows = context.rows
    if rows is None or rows.replicas == 1 or context.simulated:
        update(*args, **options)
        return
    with step_context.extended(rows=None):  # metrics inside this one are updated with it
        if any(map(_has_rows, tf.nest.flatten((args, options)))):
            _update_by_rows(metric, update, (args, options), rows)
            return
        given = inspect.signature(update).bind(*args, **options).arguments
        if context.has_shares or _counts_rows(given.get("sample_weight"), rows):
            update(*args, **options)
        else:
            _update_by_step(metric, update, (args, options), rows)


def _has_rows(value: Any) -> bool:
    """Return whether the first dimension of a value depends on the rows of a replica."""
    if not isinstance(value, tf.Tensor):
        return isinstance(value, (tf.RaggedTensor, tf.SparseTensor))
    if value.shape.rank == 0:
        return False
    return not tf.is_symbolic_tensor(value) or value.shape.rank is None or value.shape[0] is None


def _counts_rows(weight: Any, rows: StepRows) -> bool:
    """Return whether the weight of a number depends on the rows, as one that counts them."""
    if weight is None:
        return False
    weight = tf.convert_to_tensor(weight)
    number = tf.get_static_value(weight)
    if number is None:
        return depends_on_batch(weight)
    return number == tf.get_static_value(rows.local_rows)


def _update_by_rows(metric: Any, update: Callable[..., Any], data: Any, rows: StepRows) -> None:
    if _is_additive(metric, data):
        update(*data[0], **data[1])
        return
    own = [part for part in tf.nest.flatten(data) if _has_rows(part)]
    try:
        for part in own:
            check_can_gather(f"the metric {_named(metric)}", part)
    except ModelError as error:
        _warn_of_first_rows(metric, f"and {error}")
    else:
        gathered = iter(_gather(own, rows))
        data = tf.nest.map_structure(lambda p: next(gathered) if _has_rows(p) else p, data)
    _update_on_first(metric, update, data)


def _gather(own: list[tf.Tensor], rows: StepRows) -> list[tf.Tensor]:
    """Return the parts of the rows of all replicas; a row may be several of a tensor."""
    count = tf.maximum(rows.local_rows, 1)
    by_row = [
        tf.reshape(part, tf.concat([[count, -1], tf.shape(part, tf.int64)[1:]], 0)) for part in own
    ]
    return [
        tf.ensure_shape(
            tf.reshape(part, tf.concat([[-1], tf.shape(part)[2:]], 0)), [None, *given.shape[1:]]
        )
        for part, given in zip(gather_rows(by_row, rows), own, strict=True)
    ]


def _update_by_step(metric: Any, update: Callable[..., Any], data: Any, rows: StepRows) -> None:
    if not _is_additive(metric, data):
        _warn_of_first_rows(metric, "and is given one number per step: give it the rows")
        _update_on_first(metric, update, data)
        return
    before = [tf.identity(variable.value) for variable in metric.variables]
    for variable in metric.variables:
        variable.assign(tf.zeros(variable.shape, variable.dtype))
    update(*data[0], **data[1])
    for variable, value in zip(metric.variables, before, strict=True):
        fraction = rows.local_fraction(tf.float64)
        if not tf.as_dtype(variable.dtype).is_floating:
            fraction = on_first_replica(tf.ones_like(fraction))
        variable.assign(value + variable.value * tf.cast(fraction, variable.dtype))


def _update_on_first(metric: Any, update: Callable[..., Any], data: Any) -> None:
    of_first_replica.add(metric)
    update(*data[0], **data[1])
    for variable in metric.variables:
        variable.assign(on_first_replica(variable.value))


def _warn_of_first_rows(metric: Any, reason: str) -> None:
    warnings.warn(
        f"the metric {_named(metric)} is no sum over the rows of a batch, {reason}; until then it "
        f"is that of the rows of one replica",
        stacklevel=2,
    )


def _is_additive(metric: Any, data: Any) -> bool:
    """Return whether the state after all rows is the sum of those after parts of them."""
    if metric not in _adds_up:
        try:
            with tf.init_scope(), simulated_calls.eager_functions():
                _adds_up[metric] = _compare_parts(metric, data)
        except Exception as error:  # noqa: BLE001 - of the user's code, on numbers that are made up
            _adds_up[metric] = True
            warnings.warn(
                f"the metric {_named(metric)} was not compared on parts of a batch "
                f"({type(error).__name__}: {error}): it is taken to be a sum over the rows",
                stacklevel=2,
            )
    return _adds_up[metric]


def _compare_parts(metric: Any, data: Any) -> bool:
    random, given = np.random.default_rng(0), tf.nest.flatten(data)
    whole = [_made_up(random, value) for value in given]
    if given and _has_rows(given[0]) and whole[0].dtype.is_floating:
        whole[0] = tf.round(whole[0])  # targets: some rows are classified right, others wrong

    def state(*parts: range) -> list[np.ndarray]:
        values = [tf.convert_to_tensor(value) for value in metric.stateless_reset_state()]
        for numbers in parts:
            pairs = zip(given, whole, strict=True)
            own = [rows_of(numbers, made) if _has_rows(value) else made for value, made in pairs]
            args, options = tf.nest.pack_sequence_as(data, own)
            values = metric.stateless_update_state(values, *args, **options)
        return [np.asarray(value, float) for value in values]

    states = [state(*PARTS)]
    if any(map(_has_rows, given)):
        states.append(state(range(ROWS)))
    return all(
        np.allclose(sum(parts), value, _TOLERANCE, _TOLERANCE, equal_nan=True)
        for each in states
        for *parts, value in zip(*map(state, PARTS), each, strict=True)
    )


def _made_up(random: np.random.Generator, value: Any) -> Any:
    if not tf.is_tensor(value):
        return value
    spec = tf.TensorSpec(value.shape, value.dtype)
    if _has_rows(value):
        return made_up(random, spec)
    return made_up(random, tf.TensorSpec([1, *spec.shape], spec.dtype))[0]


def _named(metric: Any) -> str:
    """Return a metric's name, with its class or function and the line of that."""
    function = keras_compat.metric_function(metric)
    return f"{metric.name} of {type(metric).__name__}{definition(function)}"
