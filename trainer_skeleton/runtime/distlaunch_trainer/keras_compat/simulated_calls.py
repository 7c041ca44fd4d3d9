"""Calls of Keras and TensorFlow that are observed, or compute something else, for a while."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.ops import gen_random_ops, gen_stateless_random_ops
from tensorflow.python.ops import gen_stateless_random_ops_v2 as gen_stateless_random_ops_of_keys
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from . import UnchangedVariables, tracked_variables

_DRAWS = gen_random_ops, gen_stateless_random_ops, gen_stateless_random_ops_of_keys
_UNUSED_SEED = 1_234_567_891


@contextmanager
def replaced(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Replace an attribute by ``wrap(attribute)`` in here."""
    original = vars(owner)[name]
    setattr(owner, name, wrap(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def unchanged_state(
    model: keras.Model, note_update: Callable[[tuple[keras.Variable, Any]], None] | None = None
) -> Iterator[None]:
    """Leave all state as it is: variables of a model, and generators of random numbers.

    Metrics are empty in here: to read one that replicas count is a collective. A function may be
    called with the variables of Keras that would be assigned, and their values.
    """
    of_keras = {id(variable.value) for variable in [*model.variables, *model.metrics_variables]}
    others = (v for _, v in tracked_variables(model) if id(v) not in of_keras)
    variables = [(variable, tf.identity(variable)) for variable in others]
    empty = [(v, tf.zeros(v.shape, v.dtype)) for m in model.metrics for v in m.variables]
    generator = getattr(context.context(), "_rng", None)  # of eager operations, if they have a seed
    of_numpy = np.random.get_state()  # noqa: NPY002 - what scripts use
    states = random.getstate(), generator and generator.getstate()
    try:
        with UnchangedVariables(empty) as scope:
            scope.note_update = note_update
            yield
    finally:
        for variable, value in variables:
            variable.assign(value)
        random.setstate(states[0])
        np.random.set_state(of_numpy)  # noqa: NPY002
        if generator:
            generator.setstate(states[1])


@contextmanager
def without_assignments() -> Iterator[None]:
    """Leave TensorFlow's variables as they are, also those that no model has."""
    with ExitStack() as stack:
        for name in ("assign", "assign_add", "assign_sub"):
            unchanged: Any = lambda _: lambda variable, *_, **__: variable  # noqa: E731
            stack.enter_context(replaced(ResourceVariable, name, unchanged))
        yield


@contextmanager
def eager_functions() -> Iterator[None]:
    """Run functions of TensorFlow without tracing them: traces are kept for later calls."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


@contextmanager
def replaced_draws(replace: Callable[[tf.Tensor], tf.Tensor]) -> Iterator[None]:
    """Use ``replace(numbers)`` for all random numbers that are drawn in here; shuffle nothing."""

    def wrap(draw: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(draw)
        def draw_same(value: Any, *args: Any, **options: Any) -> Any:
            if draw.__name__.endswith("shuffle"):
                return tf.convert_to_tensor(value)
            if "seed2" in options:  # of an operation that keeps its state by its seeds
                options |= {"seed": _UNUSED_SEED, "seed2": _UNUSED_SEED}
            return replace(draw(value, *args, **options))

        return draw_same

    with ExitStack() as stack:
        for module in _DRAWS:
            for name, function in list(vars(module).items()):
                is_own = getattr(function, "__module__", "") == module.__name__
                is_public = name.islower() and not name.startswith("_")
                is_other = any(part in name for part in ("_get_", "_grad", "_fallback"))
                if is_own and is_public and not is_other:
                    stack.enter_context(replaced(module, name, wrap))
        yield


def replaced_moments(wrap: Callable[[Any], Any]) -> Any:
    """Replace the function from inputs and mask to moments of all batch normalizations in here."""
    return replaced(keras.layers.BatchNormalization, "_moments", wrap)
