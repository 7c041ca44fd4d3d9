"""Variables that Keras does not track.

Such are a ``tf.Variable`` of a layer, and what else a training step assigns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.step.step_timing import OF_TRAINER

from .variable_names import stable_names, unique_names

PREFIX = "other/"
"""The beginning of their names in a checkpoint."""

_UNSAVED = (tf.string, tf.resource, tf.variant)


class OtherVariables:
    """The variables of a step that are not `known`, by name; all tasks call the methods."""

    def __init__(
        self, model: keras.Model, cluster: Cluster, known: Iterable[keras.Variable]
    ) -> None:
        self._cluster = cluster
        self._excluded: set[int] = set()  # handles of what is saved elsewhere
        self._known: set[int] = set()  # handles of these variables
        self._variables: dict[str, Any] = {}
        self.exclude(known)
        self._add(keras_compat.tracked_variables(model))

    def exclude(self, known: Iterable[keras.Variable]) -> None:
        """Leave out what is saved elsewhere."""
        for variable in known:
            self._excluded |= self._handles(variable.value)

    def add_written(self, graph: tf.Graph) -> list[str]:
        """Add what a traced step assigns; return the names of what no checkpoint can hold.

        ModelError is raised for a variable that several replicas would each assign alone.
        """
        written = keras_compat.written_variables(graph)
        if self._cluster.strategy.num_replicas_in_sync > 1:
            for variable in written:
                if not self._excluded & self._handles(variable):
                    _check_distributed(variable)
        self._add((each.name, each) for each in written)
        unsaved = [name for name, v in self._variables.items() if v.dtype in _UNSAVED]
        for name in unsaved:
            del self._variables[name]
        return unsaved

    @property
    def names(self) -> set[str]:
        """The names of those that are known so far."""
        return set(self._variables)

    def values(self) -> dict[str, np.ndarray]:
        """Return the values of all replicas; where each has its own, those of the first."""
        return {
            name: (each.read_value() if _is_reduced(each) else self._local(each)[0]).numpy()
            for name, each in self._variables.items()
        }

    def assign(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Set the variables of these names and shapes; return the values of which there is none."""
        left = {}
        for name, value in values.items():
            variable = self._variables.get(name)
            if variable is None or not variable.shape.is_compatible_with(value.shape):
                left[name] = value
                continue
            is_sum = _is_reduced(variable) and variable.aggregation == tf.VariableAggregation.SUM
            for number, replica in enumerate(self._local(variable)):
                is_first = self._cluster.replica_ids[number] == 0
                replica.assign(value if is_first or not is_sum else np.zeros_like(value))
        return left

    def _local(self, variable: Any) -> tuple[Any, ...]:
        """Return TensorFlow's variables of the replicas of this task."""
        local: tuple[Any, ...] = self._cluster.strategy.experimental_local_results(variable)
        return local

    def _handles(self, variable: Any) -> set[int]:
        return {id(each.handle) for each in self._local(variable)}

    def _add(self, named: Iterable[tuple[str, Any]]) -> None:
        for name, variable in named:
            handles = self._handles(variable)
            is_known = not handles.isdisjoint(self._excluded) or not handles.isdisjoint(self._known)
            if not is_known and OF_TRAINER not in variable.name:
                self._known |= handles
                names = [*self._variables, *stable_names([name.partition(":")[0]])]
                self._variables[unique_names(names)[-1]] = variable


def saved_others(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return those of a checkpoint's values that are of other variables, by their names."""
    return {n.removeprefix(PREFIX): v for n, v in values.items() if n.startswith(PREFIX)}


def _check_distributed(variable: Any) -> None:
    if not hasattr(variable, "distribute_strategy") and OF_TRAINER not in variable.name:
        raise ModelError(
            f"a step assigns the variable {variable.name}, of which each replica would have a "
            "value of its own rows: create it with tf.Variable(…, "
            "aggregation=tf.VariableAggregation.MEAN), or SUM or ONLY_FIRST_REPLICA"
        )


def _is_reduced(variable: Any) -> bool:
    """Return whether the value is made of those of all replicas."""
    is_on_read = variable.synchronization == tf.VariableSynchronization.ON_READ
    return is_on_read and variable.aggregation != tf.VariableAggregation.NONE
