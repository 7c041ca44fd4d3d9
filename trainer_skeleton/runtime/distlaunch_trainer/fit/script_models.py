"""The models of a script: their clusters, their compiled functions and their variables."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import keras
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.cluster.strategy import check_same_strategy
from distlaunch_trainer.input.batch_rows import as_tensor, count_rows, map_tensors, tensors_in
from distlaunch_trainer.input.user_data.same_rows import check_same_batch
from distlaunch_trainer.keras_compat import fit_calls, keras_random
from distlaunch_trainer.model.model_build import build_model
from distlaunch_trainer.model.model_state import find_optimizers
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.step.additivity import compare_parts
from distlaunch_trainer.step.custom_steps import overrides
from distlaunch_trainer.step.model_replicas import ModelReplicas
from distlaunch_trainer.step.normalization import replica_count_warnings
from distlaunch_trainer.step.step_functions import StepFunctions


class ScriptModels:
    """What calls of ``fit``, ``evaluate`` and the like need of a model."""

    def __init__(self, cluster: Cluster, report: Report, *, sync_batch_norm: bool) -> None:
        self._cluster = cluster
        self._report = report
        self._sync_batch_norm = sync_batch_norm
        self._notes: set[str] = set()
        self._trained_by_batch: WeakSet[keras.Model] = WeakSet()
        self._calls: Counter[tuple[str, str]] = Counter()  # of train_on_batch() and the like
        self._own_cluster: Cluster | None = None

    def cluster_of(self, model: keras.Model) -> Cluster:
        """Return the cluster of a model: one task may make a strategy of its own."""
        strategy = model.distribute_strategy
        if self._cluster.role.num_workers > 1 or strategy is self._cluster.strategy:
            return self._cluster
        if self._own_cluster is None or self._own_cluster.strategy is not strategy:
            self._own_cluster = Cluster(self._cluster.role, strategy)
        return self._own_cluster

    def functions_of(self, model: keras.Model) -> StepFunctions:
        """Return the functions of a model's steps, which end with ``compile()``."""
        if not isinstance(model.train_function, StepFunctions):
            strategy = self.cluster_of(model).strategy
            replicas = ModelReplicas(model, strategy, synchronize=self._synchronizes(model))
            model.train_function = StepFunctions(replicas)
        return model.train_function

    def build(self, model: keras.Model, batch: Any, *, trains: bool = False) -> None:
        """Create the variables of a model and of all its optimizers, for a batch or its type."""
        is_custom = overrides(model, "train_step")
        with model.distribute_strategy.scope():
            if keras_random.is_same():
                keras_random.global_generator()  # replicas are traced where none can be created
            if not _is_built(model, trains=trains):
                for note in build_model(model, batch, trains=trains):
                    self._report.warn(note)
        functions = self.functions_of(model)
        compares = trains or not is_custom  # the training step
        kind = compares, len(tensors_in(batch))  # with sample weights or without
        if self._cluster.replicas > 1 and kind not in functions.compared:
            functions.compared.add(kind)
            self._warn_once(compare_parts(model, batch, trains=compares))

    def warn_of_layers(self, model: keras.Model) -> None:
        """Warn once of each layer by which the weights depend on the number of replicas."""
        notes = replica_count_warnings(
            model, self._cluster.replicas, synchronized=self._synchronizes(model)
        )
        self._warn_once(notes)

    def _warn_once(self, notes: list[str]) -> None:
        for note in (note for note in notes if note not in self._notes):
            self._report.warn(note)
        self._notes.update(notes)

    def _synchronizes(self, model: keras.Model) -> bool:
        """Return whether batch normalizations take the rows of all replicas.

        They do where single batches are trained on, which are small, as those of GANs.
        """
        return self._sync_batch_norm or model in self._trained_by_batch

    def run_on_batch(self, function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
        """Train or evaluate on a batch that all tasks have, each replica on its rows."""
        values = arguments.arguments
        model = values["self"]
        if not model.compiled:
            return function(*arguments.args, **arguments.kwargs)  # which refuses it
        check_same_strategy(model, self._cluster.strategy, f"{function.__name__}()")
        weights = fit_calls.weights_of_classes(
            values["y"], values["sample_weight"], values.get("class_weight")
        )
        batch = map_tensors(as_tensor, (values["x"], values["y"], weights))
        is_training = function.__name__ == "train_on_batch"
        self._compare(model, function.__name__, batch)
        self.build(model, map_tensors(tf.type_spec_from_value, batch), trains=is_training)
        if model not in self._trained_by_batch:
            self._trained_by_batch.add(model)
            model.train_function = None  # of other batch normalizations
            self.warn_of_layers(model)
        functions, one = self.functions_of(model), tf.constant(1)
        has_empty_replicas = bool(count_rows(batch) < self.cluster_of(model).replicas)
        options = {"has_empty_replicas": has_empty_replicas, "form": "same"}
        model.reset_metrics()
        if is_training:
            functions.keep_logs(functions.train(batch, one, tf.zeros([3]), **options))
            functions.synchronize()  # the script may read the model now
        else:
            functions.evaluate(batch, one, **options)
        logs = functions.logs()
        return fit_calls.results_of(model, logs, return_dict=values["return_dict"])

    def _compare(self, model: keras.Model, name: str, batch: Any) -> None:
        """Refuse a batch that differs between the tasks, in the calls 1, 2, 4, 8 … of a model."""
        self._calls[name, model.name] += 1
        calls = self._calls[name, model.name]
        if self._cluster.role.num_workers > 1 and not calls & (calls - 1):
            rendezvous = self._cluster.rendezvous
            check_same_batch(batch, rendezvous, f"the batch of {rendezvous.meet(f'{name}()')}")


def _is_built(model: keras.Model, *, trains: bool) -> bool:
    """Return whether all variables that the steps of a model need are created."""
    if trains and not all(optimizer.built for optimizer in find_optimizers(model).values()):
        return False
    has_functions = isinstance(model.train_function, StepFunctions)
    if overrides(model, "train_step"):  # which need not use the losses
        return has_functions
    is_built = has_functions or all(layer.built for layer in keras_compat.all_layers(model))
    return is_built and keras_compat.has_built_losses(model)
