"""Whether all replicas have the same variables, compared before each checkpoint.

They begin with the same values and apply the same gradients, so they are equal bit by bit. What is
done on some tasks only, e.g. by a callback, would train several models and save the chief's.
"""

from __future__ import annotations

import zlib

import keras
import ml_dtypes
import numpy as np
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.keras_compat.keras_random import is_same
from distlaunch_trainer.model.model_state import ModelState
from distlaunch_trainer.step.step_functions import StepFunctions
from distlaunch_trainer.task.explain import definition

from .loop_options import TaskServices

_LARGE = 1 << 16  # bytes from which TensorFlow's checksum takes less time than Python's

_REMEDY = (
    "usually a callback, or a layer's call(), sets it by the task, a clock or random numbers "
    "without a seed: set the same on all tasks, by the epoch, the logs or "
    "np.random.default_rng(epoch); the last checkpoint is kept"
)


class ReplicaComparison:
    """Compares the variables of a model and its optimizers, once `synchronize` has merged them.

    Left out are those of which each replica has its own by their ``synchronization``, and states of
    seed generators, unless all replicas draw the same numbers.
    """

    def __init__(
        self,
        model: keras.Model,
        state: ModelState,
        services: TaskServices,
        functions: StepFunctions,
    ) -> None:
        self._state = state
        self._cluster = services.cluster
        self._replicas = range(services.cluster.local_replicas)
        self._report = services.report
        self._functions = functions
        self._has_warned = False  # of rounding
        weights = set(map(id, model.variables if is_same() else model.weights))
        seeds = {id(variable) for variable in model.variables} - weights
        self._names = [
            name
            for name, variable in state.variables.items()
            if id(variable) not in seeds
            and variable.value.synchronization != tf.VariableSynchronization.ON_READ
        ]
        # What a layer's call may assign by the rows of its replica.
        self._owners = {
            id(variable): layer
            for layer in keras_compat.all_layers(model)
            for variable in keras_compat.own_non_trainable_variables(layer)
            if variable.value.aggregation == tf.VariableAggregation.NONE
        }

    def check(self, step: int) -> None:
        """Raise ModelError if replicas differ after a step; a collective.

        Where values differ by rounding, as machines with other processors sum in another order, all
        replicas get the chief's. Statistics that layers count by their rows are a warning.
        """
        if self._cluster.replicas == 1:
            return
        sums = self._checksums()
        totals = self._cluster.all_gather(np.array([zlib.crc32(own) for own in sums], np.int64))
        if (totals == totals.flat[0]).all():
            return
        table = self._cluster.all_gather(sums).reshape(self._cluster.replicas, -1).T
        rows = dict(zip(self._names, table, strict=True))
        names = self._equalize([name for name, row in rows.items() if (row != row[0]).any()])
        if wrong := [name for name in names if not self._is_statistic(name)]:
            first = min(wrong, key=lambda name: len(self._state.variables[name].shape))
            others = f" (and {len(wrong) - 1} more variables)" if len(wrong) > 1 else ""
            place = self._describe(first, rows[first])
            raise ModelError(f"the replicas differ after step {step}: {place}{others}; {_REMEDY}")
        if names:
            self._names = [name for name in self._names if name not in names]
            layers = {name: type(self._owners[id(self._state.variables[name])]) for name in names}
            own = [f"{n} of {kind.__name__}{definition(kind.call)}" for n, kind in layers.items()]
            self._report.warn(
                f"each replica has its own {', '.join(own)}, by its own rows, and the chief's is "
                f"saved: the weights may depend on the number of replicas; add_weight(..., "
                f'aggregation="mean") gives all replicas the mean'
            )

    def _checksums(self) -> np.ndarray:
        """Return a number for each of this task's replicas and variables."""
        values = (self._state.tensors(number) for number in self._replicas)
        return np.array([[_checksum(own[name]) for name in self._names] for own in values])

    def _equalize(self, names: list[str]) -> list[str]:
        """Give all replicas the chief's values where only rounding differs; return other names."""
        components = [self._state.components(number) for number in self._replicas]
        values = [[np.asarray(own[name]) for name in names] for own in components]
        of_chief = self._cluster.broadcast_all(values[0])
        near = [
            all(_is_rounding(value, one) for one in own)
            for value, *own in zip(of_chief, *values, strict=True)
        ]
        is_far = self._cluster.all_reduce_sum(1 - np.array(near, np.int64)) > 0
        equalized = [name for name, far in zip(names, is_far, strict=True) if not far]
        for own in components:
            for name in equalized:
                own[name].assign(of_chief[names.index(name)])
        if equalized and not self._has_warned:
            self._has_warned = True
            self._report.warn(
                f"the replicas differed by rounding in {', '.join(equalized)}, as machines of "
                f"several kinds, and GPUs, sum in another order: all get the chief's values"
            )
        return [name for name in names if name not in equalized]

    def _is_statistic(self, name: str) -> bool:
        """Return whether a layer's call assigns a variable, as far as that is known."""
        graph, component = self._functions.graph, self._state.components(0)[name]
        is_read = graph is not None and id(component.handle) in keras_compat.only_read(graph)
        return id(self._state.variables[name]) in self._owners and not is_read

    def _describe(self, name: str, sums: np.ndarray) -> str:
        """Return which replicas do not have the chief's value, and the values of a scalar."""
        numbers = [f", device {n}" for n in self._replicas] if len(self._replicas) > 1 else [""]
        places = [f"{peer}{number}" for peer in self._cluster.role.peers for number in numbers]
        others = np.flatnonzero(sums != sums[0])
        if len(self._state.variables[name].shape):
            return f"{name} on {', '.join(places[n] for n in others)} is not that on {places[0]}"
        own = [float(self._state.components(number)[name]) for number in self._replicas]
        values = self._cluster.all_gather(np.array(own)).ravel()
        return f"{name} is {', '.join(f'{values[n]:g} on {places[n]}' for n in (0, *others))}"


def _checksum(value: tf.Tensor) -> int:
    if value.shape.num_elements() * value.dtype.size < _LARGE:
        return zlib.crc32(np.asarray(value).tobytes())
    with tf.device("CPU:0"):
        data = tf.reshape(value, [1, -1])
        return tf.raw_ops.Fingerprint(data=data, method="farmhash64").numpy().view("int64").item()


def _is_rounding(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two arrays are equal up to the root of their type's precision."""
    if not tf.as_dtype(one.dtype).is_floating:
        return bool((one == other).all())
    eps = float(ml_dtypes.finfo(one.dtype).eps)
    one, other = one.astype(float), other.astype(float)
    tolerance = eps**0.5 * np.abs(one).max(initial=0)
    return np.allclose(one, other, rtol=0, atol=tolerance, equal_nan=True)
