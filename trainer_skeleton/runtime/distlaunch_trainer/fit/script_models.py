"""The models of a script: their clusters, their compiled functions and their variables."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.cluster.strategy import check_same_strategy
from distlaunch_trainer.input.batch_rows import as_tensor, map_tensors
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
            replicas = ModelReplicas(model, strategy, synchronize=self._sync_batch_norm)
            model.train_function = StepFunctions(replicas)
        return model.train_function

    def build(self, model: keras.Model, batch: Any, *, trains: bool = False) -> None:
        """Create the variables of a model and of all its optimizers, for a batch or its type."""
        is_custom = overrides(model, "train_step")
        with model.distribute_strategy.scope():
            if keras_random.is_same():
                keras_random.global_generator()  # replicas are traced where none can be created
            self._create_variables(model, batch, trains_itself=is_custom and trains)
        functions = self.functions_of(model)
        is_called = trains or not is_custom  # what is compared
        if self._cluster.replicas > 1 and is_called and not functions.is_compared:
            functions.is_compared = True
            for note in compare_parts(model, batch):
                self._report.warn(note)

    def _create_variables(self, model: keras.Model, batch: Any, *, trains_itself: bool) -> None:
        if trains_itself:
            optimizers = find_optimizers(model).values()
            if not (model.built and all(optimizer.built for optimizer in optimizers)):
                for note in build_model(model, batch):
                    self._report.warn(note)
                model.built = True  # also without call(), which Keras would set it in
            return
        try:
            keras_compat.build_by_call(model, batch)
        except RuntimeError:
            if not overrides(model, "train_step"):  # its own steps may not call the model
                raise

    def warn_of_layers(self, model: keras.Model) -> None:
        """Warn once of each layer by which the weights depend on the number of replicas."""
        notes = replica_count_warnings(
            model, self._cluster.replicas, synchronized=self._sync_batch_norm
        )
        for note in (note for note in notes if note not in self._notes):
            self._report.warn(note)
        self._notes.update(notes)

    def run_on_batch(self, function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
        """Train or evaluate on a batch, which each replica has as a whole."""
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
        self.build(model, map_tensors(tf.type_spec_from_value, batch), trains=is_training)
        functions = self.functions_of(model)
        model.reset_metrics()
        if is_training:
            signals = tf.zeros([3])
            functions.keep_logs(functions.train(batch, tf.constant(1), signals, form="whole"))
        else:
            functions.evaluate(batch, tf.constant(1), has_empty_replicas=False, form="whole")
        logs = functions.logs()
        return fit_calls.results_of(model, logs, return_dict=values["return_dict"])
