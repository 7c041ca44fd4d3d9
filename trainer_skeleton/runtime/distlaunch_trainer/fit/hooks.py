"""Keras's ``fit``, ``evaluate`` and ``predict`` on several replicas."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer import keras_compat, keras_random
from distlaunch_trainer.cluster import Cluster
from distlaunch_trainer.custom_steps import overrides
from distlaunch_trainer.model_build import build_model
from distlaunch_trainer.model_state import find_optimizers
from distlaunch_trainer.user_dataset import keep_order

from . import weighting
from .batches import data_spec
from .session import FitData, Session
from .shared_data import distribute, observe_distributed


def install(cluster: Cluster, session: Session) -> None:
    """Have Keras train, evaluate and predict on the replicas of a cluster.

    Models split their data's batches over the replicas, weigh what each replica computes by its
    rows, and return the results of the global batch on every task.
    """
    keras_compat.replace_fit_data(
        lambda batches: _distribute(batches, cluster, session),
        lambda model, batch: _build(model, batch, session),
    )
    if cluster.role.num_workers > 1:
        keep_order()
    if cluster.replicas > 1:
        keras_compat.keep_over_clear_session(lambda: None)
        keras_compat.save_without_collectives()
        weighting.install()
        keras_compat.replace_fit_steps(_wrap_step, weighting.gathered, _local_result)
    elif keras_random.is_same():
        as_it_is = lambda value, *_: value  # noqa: E731
        draws = lambda _, step: weighting.drawing(step)  # noqa: E731
        keras_compat.replace_fit_steps(draws, weighting.drawing, as_it_is)


def _distribute(
    batches: keras_compat.FitBatches, cluster: Cluster, session: Session
) -> tuple[Any, Any]:
    """Return a data set of this task's part, and the specification of a global batch."""
    adapter = batches.data_adapter
    with session.shuffled_arrays():
        dataset = adapter.get_tf_dataset()
    if isinstance(dataset, tf.distribute.DistributedDataset):  # each replica has its own batches
        session.observe(FitData(batches, None, None))
        if cluster.replicas > 1:
            observe_distributed(batches, session)
        return dataset, None
    session.observe(FitData(batches, _examples(adapter), adapter.batch_size))
    spec = data_spec(dataset)
    if cluster.replicas == 1:
        return dataset, spec
    parts = distribute(
        batches,
        dataset,
        cluster,
        session,
        are_arrays=_examples(adapter) is not None,
        least_rows=_least_rows(adapter),
    )
    return parts, spec


def _build(model: keras.Model, batch: Any, session: Session) -> None:
    """Create the variables of a model and of all its optimizers, if they must be there."""
    if keras_random.is_same():
        keras_random.global_generator()  # replicas are traced where none can be created
    if session.is_training:
        session.warn_of_layers(model)
    if not session.must_build:
        return
    is_custom = overrides(model, "train_step")
    if is_custom and session.is_training:
        optimizers = find_optimizers(model).values()
        if not model.built or not all(optimizer.built for optimizer in optimizers):
            for note in build_model(model, batch):
                session.report.warn(note)
            model.built = True  # also without call(), which Keras would set it in
        return
    try:
        keras_compat.build_by_call(model, batch)
    except RuntimeError:
        if not is_custom:  # a model whose own steps do not call it needs no build
            raise


def _examples(adapter: Any) -> int | None:
    """Return the number of rows of arrays, None for other data."""
    if _has_partial_batch(adapter) is None or adapter.num_batches is None:
        return None
    missing = adapter.batch_size - (adapter.partial_batch_size or adapter.batch_size)
    return adapter.num_batches * adapter.batch_size - missing


def _least_rows(adapter: Any) -> int:
    """Return the rows that every batch has at least, as far as that is known."""
    if _has_partial_batch(adapter) is None:
        return adapter.batch_size or 0
    return adapter.partial_batch_size or adapter.batch_size or 0


def _has_partial_batch(adapter: Any) -> bool | None:
    """Return whether the last batch is smaller, None if that is not known."""
    try:
        return adapter.has_partial_batch
    except NotImplementedError:  # generators and PyDatasets
        return None


def _wrap_step(model: keras.Model, step: weighting.StepFunction) -> weighting.StepFunction:
    if model.jit_compile:
        model.jit_compile = False  # XLA does not compile the exchange between replicas
    is_custom = getattr(step, "__func__", step) not in {
        keras.Model.train_step,
        keras.Model.test_step,
    }
    return weighting.weighted(model, step, average_logs=is_custom)


def _local_result(value: Any, strategy: tf.distribute.Strategy) -> Any:
    return strategy.experimental_local_results(value)[0]
