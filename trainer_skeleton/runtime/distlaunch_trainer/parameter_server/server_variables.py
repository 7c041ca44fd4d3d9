"""The variables of a model and its optimizer on the parameter servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer.errors import ModelError, summarize
from distlaunch_trainer.keras_compat import keras_optimizers
from distlaunch_trainer.task.messages import counted

from .partition import is_elementwise, part_bounds, split, split_gradient


@dataclass(frozen=True)
class _Copy:
    """A variable of the chief's, and its parts on the servers."""

    original: keras.Variable
    parts: Sequence[keras.Variable]
    bounds: Sequence[tuple[int, int]]

    def value(self) -> tf.Tensor:
        """Return the value of all parts."""
        values = [tf.convert_to_tensor(part.value) for part in self.parts]
        return values[0] if len(values) == 1 else tf.concat(values, 0)


class ServerVariables:
    """A copy of a model's and its optimizer's variables on the parameter servers."""

    def __init__(self, model: keras.Model, strategy: tf.distribute.Strategy, servers: int) -> None:
        metrics = {id(variable) for variable in model.metrics_variables}
        frozen = [v for v in model.non_trainable_variables if id(v) not in metrics]
        most_parts = servers if is_elementwise(model.optimizer) else 1
        its_slots = _slots_of(model)
        # Copies, because Keras 3 cannot train TensorFlow's sharded variables.
        with strategy.scope():
            self._trainable = [_copy(v, most_parts) for v in model.trainable_variables]
            self._non_trainable = [_copy(v, 1) for v in frozen]
            # For the parts of the trainable variables.
            self.optimizer = _optimizer_like(model.optimizer)
            slots = _copied_optimizer(model, its_slots, self.optimizer, self._trainable)
        self._servers = servers
        self._copies = [*self._trainable, *self._non_trainable, *slots]
        self._read = tf.function(self._values, autograph=False)

    def describe(self) -> str:
        """Return a line with the number of weights, and how many are on several servers."""
        partitioned = sum(len(copy.parts) > 1 for copy in self._trainable)
        servers = counted(self._servers, "parameter server")
        return (
            f"variables: {len(self._trainable)} weights on {servers}, {partitioned} of them "
            "partitioned"
        )

    def trainable(self) -> list[tuple[keras.Variable, tf.Tensor]]:
        """Return the trainable variables of the chief's model, with the values on the servers."""
        return [(copy.original, copy.value()) for copy in self._trainable]

    def non_trainable(self) -> list[tuple[keras.Variable, tf.Tensor]]:
        """Return the others, of metrics excepted, with the values on the servers."""
        return [(copy.original, copy.value()) for copy in self._non_trainable]

    def apply(self, gradients: Sequence[Any], step: tf.Tensor) -> None:
        """Update the trainable variables by a gradient of each, None where there is none."""
        parts: list[keras.Variable] = []
        of_parts: list[Any] = []
        for copy, gradient in zip(self._trainable, gradients, strict=True):
            parts += copy.parts
            of_parts += split_gradient(gradient, copy.bounds)
        # The steps scheduled before this one: concurrent workers would lose counts.
        self.optimizer.iterations.assign(tf.cast(step, self.optimizer.iterations.dtype))
        self.optimizer.apply(of_parts, parts)

    def assign_non_trainable(self, values: Mapping[int, tf.Tensor]) -> None:
        """Set variables that are not trained, by the id of the chief's."""
        for copy in self._non_trainable:
            if id(copy.original) in values:
                copy.parts[0].assign(values[id(copy.original)])

    def pull(self, step: int) -> None:
        """Copy all values from the servers into the chief's model and optimizer.

        `step` is the number of steps done.
        """
        keras_optimizers.iteration_counter(self.optimizer).assign(step)
        for copy, value in zip(self._copies, self._read(), strict=True):
            copy.original.assign(value)

    def push(self, before: Mapping[int, np.ndarray]) -> None:
        """Copy to the servers what has changed in the chief's copy since `values` was `before`."""
        for copy in self._copies:
            value = _value(copy.original)
            if not _same(value, before[id(copy.original)]):
                for part, array in zip(copy.parts, split(value, copy.bounds), strict=True):
                    part.assign(array)

    def values(self) -> dict[int, np.ndarray]:
        """Return the values of the chief's model and optimizer, by the id of the variable."""
        return {id(copy.original): _value(copy.original) for copy in self._copies}

    def _values(self) -> list[tf.Tensor]:
        return [tf.identity(copy.value()) for copy in self._copies]


def _copy(variable: keras.Variable, most_parts: int) -> _Copy:
    """Copy a variable to the servers."""
    value = _value(variable)
    # A constraint, such as a norm, is of the whole weight.
    bounds = part_bounds(
        value.shape, value.itemsize, 1 if variable.constraint is not None else most_parts
    )
    parts = [
        keras.Variable(part, dtype=variable.dtype, trainable=variable.trainable, name=variable.name)
        for part in split(value, bounds)
    ]
    for part in parts:
        part.constraint = variable.constraint
        part.regularizer = None
    return _Copy(variable, parts, bounds)


def _optimizer_like(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """Return an optimizer of the same class and arguments, without variables."""
    try:
        return type(optimizer).from_config(keras_optimizers.optimizer_config(optimizer))
    except Exception as error:
        raise ModelError(
            f"the optimizer {type(optimizer).__name__} cannot be copied to the parameter servers: "
            f"{summarize(error)}; give it get_config()"
        ) from error


def _slots_of(model: keras.Model) -> dict[int, list[keras.Variable]]:
    """Return the variables that a model's optimizer has for each weight, by the weight's id.

    Another optimizer, built for the same weights, shows which they are.
    """
    scratch = _optimizer_like(model.optimizer)
    with _recorded_slots(scratch) as slots:
        scratch.build(model.trainable_variables)
    same = dict(zip(map(id, scratch.variables), model.optimizer.variables, strict=True))
    return {weight: [same[id(slot)] for slot in of_weight] for weight, of_weight in slots.items()}


def _copied_optimizer(
    model: keras.Model,
    its_slots: Mapping[int, Sequence[keras.Variable]],
    copy: keras.optimizers.Optimizer,
    weights: Sequence[_Copy],
) -> list[_Copy]:
    """Build the copy of an optimizer on the servers; return the copies of its variables."""
    parts = [part for weight in weights for part in weight.parts]
    with _recorded_slots(copy) as slots:
        copy.build(parts)
    excluded = [w for w in weights if not keras_optimizers.decays(model.optimizer, w.original)]
    if excluded:
        copy.exclude_from_weight_decay([part for weight in excluded for part in weight.parts])
    copies: list[_Copy] = []
    for weight in weights:
        of_parts = [slots.get(id(part), []) for part in weight.parts]
        for number, slot in enumerate(its_slots.get(id(weight.original), ())):
            own = [each[number] for each in of_parts]
            copies.append(_Copy(slot, own, weight.bounds))
    known = {id(part) for each in copies for part in each.parts}
    known_originals = {id(each.original) for each in copies}
    rest = [v for v in model.optimizer.variables if id(v) not in known_originals]
    own_rest = [v for v in copy.variables if id(v) not in known]
    for original, own in zip(rest, own_rest, strict=True):
        copies.append(_Copy(original, [own], [(0, 1)]))
    for each in copies:
        for part, value in zip(each.parts, split(_value(each.original), each.bounds), strict=True):
            part.assign(value)
    return copies


@contextmanager
def _recorded_slots(optimizer: Any) -> Iterator[dict[int, list[keras.Variable]]]:
    """Record the variables that an optimizer creates for each weight, by the weight's id."""
    slots: dict[int, list[keras.Variable]] = {}
    create = optimizer.add_variable_from_reference

    def add(reference_variable: Any, *args: Any, **options: Any) -> Any:
        variable = create(reference_variable, *args, **options)
        slots.setdefault(id(reference_variable), []).append(variable)
        return variable

    optimizer.add_variable_from_reference = add
    try:
        yield slots
    finally:
        del optimizer.add_variable_from_reference


def _value(variable: keras.Variable) -> np.ndarray:
    return np.array(keras.ops.convert_to_numpy(variable))


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.tobytes() == other.tobytes()
