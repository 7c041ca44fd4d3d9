"""Everything private to Keras that this package uses, each name in a function of its own.

Keras may change these names in any release; `check_version` refuses releases that were not tested,
and tests/trainer_skeleton/test_keras_compat.py tests each function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from importlib import import_module
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common.masking import get_keras_mask
from keras.src.backend.common.symbolic_scope import SymbolicScope
from keras.src.losses import loss as keras_loss
from keras.src.optimizers import base_optimizer
from keras.src.saving import saving_lib
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils

from .errors import ModelError

SUPPORTED = "keras>=3.12,<3.16"

CALLBACK_STATE: dict[type[keras.callbacks.Callback], tuple[str, ...]] = {
    keras.callbacks.ModelCheckpoint: ("_batches_seen_since_last_saving", "_last_batch_seen"),
    keras.callbacks.TensorBoard: (
        "_global_train_batch",
        "_global_test_batch",
        "_previous_epoch_iterations",
    ),
}
"""Private attributes in which Keras's callbacks hold state from one epoch to the next."""

Reduce = Callable[..., tf.Tensor]
"""``(values, sample_weight, mask, reduction, dtype)`` to a loss, as Keras reduces values."""


def check_version() -> None:
    """Check that this version of Keras is supported.

    Raises
    ------
    ModelError
        If it is not.
    """
    least, most = (
        tuple(map(int, number.split("."))) for number in re.findall(r"\d+\.\d+", SUPPORTED)
    )
    version = tuple(int(part) for part in keras.__version__.split(".")[:2])
    if not least <= version < most:
        raise ModelError(
            f"Keras {keras.__version__} is not supported: install '{SUPPORTED}' "
            f"(requirements.txt sets the version)"
        )


def keep_over_clear_session(restore: Callable[[], None]) -> None:
    """Have ``clear_session()`` of Keras call `restore`, and leave TensorFlow's default graph.

    That graph is empty in TensorFlow 2, but for the strategy: after a reset, tasks would train
    apart. All names of ``clear_session()``, also that of tf_keras, end in this function.
    """
    import_module("tensorflow.compat.v1")  # the first import of this name replaces tf.compat.v1
    for module in (tf.compat.v1, tf.compat.v2.compat.v1):
        module.reset_default_graph = restore


def all_layers(layer: keras.Layer, *, include_self: bool = True) -> list[keras.Layer]:
    """Return the layers inside a layer or model at any depth, each once."""
    return list(layer._flatten_layers(include_self=include_self))  # noqa: SLF001


@contextmanager
def variable_creation() -> Iterator[None]:
    """Create the variables of layers, losses and metrics that are called in here; update none."""
    with keras.StatelessScope(collect_losses=True), SymbolicScope():
        yield


def loss_tracker(model: keras.Model) -> keras.metrics.Metric | None:
    """Return the metric with the mean of the loss, None if the model has none."""
    return model._loss_tracker  # noqa: SLF001 - a metric of the user's may be named "loss" too


def output_loss_metrics(model: keras.Model) -> list[keras.metrics.Metric]:
    """Return the metrics with the mean loss of each of several outputs."""
    return list(model._compile_loss.metrics) if model._compile_loss else []  # noqa: SLF001


def only_loss(model: keras.Model) -> keras.losses.Loss | None:
    """Return the loss that a built model was compiled with, None if there are none or several."""
    losses = model._compile_loss._flat_losses if model._compile_loss else None  # noqa: SLF001
    return losses[0].loss if losses is not None and len(losses) == 1 else None


def compiled_loss(model: keras.Model, y: Any, predicted: Any, sample_weight: Any) -> tf.Tensor:
    """Return the loss that a model was compiled with, without regularizers and ``add_loss()``."""
    return model._compile_loss(y, predicted, sample_weight)  # noqa: SLF001


def mask_of(output: Any) -> Any:
    """Return the mask that layers have attached to an output, None if there is none."""
    return get_keras_mask(output)


def own_losses(layer: keras.Layer) -> list[tf.Tensor]:
    """Return what the last call of a layer added to the loss, without its inner layers."""
    return list(layer._losses)  # noqa: SLF001


def own_non_trainable_variables(layer: keras.Layer) -> list[keras.Variable]:
    """Return the weights that a layer's call may change, without its inner layers and metrics."""
    return list(layer._non_trainable_variables)  # noqa: SLF001


def has_seed_generators(layer: keras.Layer) -> bool:
    """Return whether a layer has a generator of random numbers, without its inner layers."""
    return bool(getattr(layer, "_seed_generators", None))


def replace_moments(layer: keras.layers.BatchNormalization, wrap: Callable[[Any], Any]) -> None:
    """Replace a layer's function from inputs and mask to mean and variance of each channel.

    Parameters
    ----------
    layer
        A built layer.
    wrap
        Is given Keras's function, and returns the one to use.
    """
    layer._moments = wrap(layer._moments)  # noqa: SLF001 - an attribute of this layer alone


def disable_gradient_aggregation(optimizer: keras.optimizers.Optimizer) -> None:
    """Keep an optimizer from summing gradients over the replicas."""
    inner: Any = optimizer
    while inner is not None:
        inner._all_reduce_sum_gradients = list  # noqa: SLF001
        inner = getattr(inner, "inner_optimizer", None)


def iteration_counter(optimizer: keras.optimizers.Optimizer) -> keras.Variable:
    """Return the variable with the number of gradients that an optimizer was given."""
    return optimizer._iterations  # noqa: SLF001


def optimizer_config(optimizer: keras.optimizers.Optimizer) -> dict[str, Any]:
    """Return an optimizer's arguments; its schedule is that object, and not serialized."""
    rate = getattr(optimizer, "_learning_rate", None)
    if rate is None or isinstance(rate, keras.Variable):
        return optimizer.get_config()
    changed: Any = optimizer
    changed._learning_rate = None  # noqa: SLF001 - a schedule need not have get_config()
    try:
        return optimizer.get_config() | {"learning_rate": rate}
    finally:
        changed._learning_rate = rate  # noqa: SLF001


def decays(optimizer: keras.optimizers.Optimizer, variable: keras.Variable) -> bool:
    """Return whether an optimizer's weight decay is for a variable."""
    return bool(optimizer._use_weight_decay(variable))  # noqa: SLF001


def observe_gradients(
    optimizer: keras.optimizers.Optimizer, observe: Callable[[Sequence[Any]], None]
) -> None:
    """Have ``observe`` called with the gradients of each update, before they are clipped.

    Of a LossScaleOptimizer they are not scaled, and of one that accumulates they are the mean.
    """
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    clip = optimizer._clip_gradients  # noqa: SLF001

    @tf.autograph.experimental.do_not_convert
    def observed(gradients: Sequence[Any]) -> Any:
        observe(gradients)
        return clip(gradients)

    optimizer._clip_gradients = observed  # noqa: SLF001


def compile_updates(optimizer: keras.optimizers.Optimizer, is_compiled: Callable[[], bool]) -> None:
    """Have XLA compile an optimizer's clipping and its updates of all variables of a device.

    Keras does so where it compiles whole steps. Updates by rows of sparse gradients are left out:
    their number may be another in each step.

    Parameters
    ----------
    optimizer
        The optimizer; of a LossScaleOptimizer the inner one is taken.
    is_compiled
        Whether to compile the step that is traced.
    """
    own: Any = getattr(optimizer, "inner_optimizer", optimizer)
    clip, decay = own._clip_gradients, own._apply_weight_decay  # noqa: SLF001
    update_all = own._distributed_tf_update_step  # noqa: SLF001
    compiled = partial(tf.function, autograph=False, jit_compile=True)

    def update(strategy: Any, grads_and_vars: Sequence[Any], rate: Any) -> None:
        if not is_compiled():
            update_all(strategy, grads_and_vars, rate)
            return
        gradients, variables = map(list, zip(*grads_and_vars, strict=True))

        def update_variables(gradients: list[Any], rate: Any) -> None:
            for gradient, variable in zip(gradients, variables, strict=True):
                if own.weight_decay is not None and decays(own, variable):
                    factor = tf.cast(own.weight_decay, variable.dtype)
                    variable.assign_sub(variable * factor * tf.cast(rate, variable.dtype))
                own.update_step(gradient, variable, rate)

        def on_device(_: Any, gradients: list[Any], rate: Any) -> None:
            is_sparse = any(isinstance(gradient, tf.IndexedSlices) for gradient in gradients)
            run = update_variables if is_sparse else compiled(update_variables)
            value = rate.value if isinstance(rate, keras.Variable) else rate
            run(gradients, tf.convert_to_tensor(value))

        strategy.extended.update(variables[0], on_device, args=(gradients, rate), group=False)

    def clipped(gradients: Any) -> Any:
        is_dense = not any(isinstance(gradient, tf.IndexedSlices) for gradient in gradients)
        return compiled(clip)(gradients) if is_compiled() and is_dense else clip(gradients)

    own._clip_gradients = clipped  # noqa: SLF001
    own._apply_weight_decay = lambda v: None if is_compiled() else decay(v)  # noqa: SLF001
    own._distributed_tf_update_step = update  # noqa: SLF001


def learning_rate_of(optimizer: keras.optimizers.Optimizer) -> Any:
    """Return an optimizer's learning rate: a variable, a schedule or a function."""
    return getattr(optimizer, "inner_optimizer", optimizer)._learning_rate  # noqa: SLF001


def set_learning_rate(
    optimizer: keras.optimizers.Optimizer,
    rate: float | keras.optimizers.schedules.LearningRateSchedule,
) -> None:
    """Set an optimizer's learning rate; a model with it can still be exported.

    In place of a constant rate, a schedule removes a variable from the optimizer's list, and
    TensorFlow saves no list that something was removed from.
    """
    optimizer.learning_rate = rate
    variables = getattr(optimizer, "inner_optimizer", optimizer)._variables  # noqa: SLF001
    if hasattr(variables, "_update_snapshot"):  # TensorFlow's wrapper of a list
        variables._non_append_mutation = False  # noqa: SLF001
        variables._update_snapshot()  # noqa: SLF001


def schedule_step(optimizer: keras.optimizers.Optimizer) -> keras.Variable:
    """Return the variable with the step that an optimizer computes its learning rate of.

    With loss scaling it counts the updates that are not skipped.
    """
    return iteration_counter(getattr(optimizer, "inner_optimizer", optimizer))


def gradient_accumulator(
    optimizer: keras.optimizers.Optimizer, variable: keras.Variable
) -> keras.Variable:
    """Return the variable in which a built optimizer accumulates a variable's gradients."""
    index = optimizer._get_variable_index(variable)  # noqa: SLF001
    return optimizer._accumulated_gradients[index]  # noqa: SLF001


def replace_optimizer_operations(wrap: Callable[[Any], Any]) -> None:
    """Replace ``keras.ops`` in the base class of all optimizers."""
    base_optimizer.ops = wrap(base_optimizer.ops)


def optimizer_operations() -> Any:
    """Return what the base class of all optimizers uses as ``keras.ops``."""
    return base_optimizer.ops


def replace_loss_reduction(
    wrap: Callable[[Reduce], Reduce], is_scaled_by_caller: Callable[[], bool]
) -> None:
    """Replace the function that reduces losses, and Keras's scaling by replicas.

    Keras divides means by the number of replicas, but not sums nor what `compute_loss` adds. It
    does not where `is_scaled_by_caller` returns true.
    """
    if not getattr(keras_loss.reduce_weighted_values, "is_replaced", False):
        reduce: Any = wrap(keras_loss.reduce_weighted_values)
        reduce.is_replaced = True
        keras_loss.reduce_weighted_values = reduce
        for name in ("scale_loss_for_distribution", "unscale_loss_for_distribution"):
            scale = getattr(keras_loss, name)
            conditional = partial(_scale_unless, scale, is_scaled_by_caller)
            setattr(keras_loss, name, conditional)


def replace_added_losses(rescale: Callable[[Any], Any]) -> None:
    """Have Keras add ``rescale(loss)`` for each loss of ``add_loss()`` and each regularizer."""
    trainer: Any = keras.Model
    if not getattr(trainer._aggregate_additional_loss, "is_replaced", False):  # noqa: SLF001
        aggregate = trainer._aggregate_additional_loss  # noqa: SLF001

        def rescaled(model: Any, loss: Any) -> Any:
            return aggregate(model, rescale(loss))

        rescaled.is_replaced = True  # type: ignore[attr-defined]
        trainer._aggregate_additional_loss = rescaled  # noqa: SLF001


def _scale_unless(scale: Callable[[Any], Any], is_scaled: Callable[[], bool], value: Any) -> Any:
    return value if is_scaled() else scale(value)


def apply_mask(sample_weight: tf.Tensor, mask: Any, dtype: Any, reduction: str) -> tf.Tensor:
    """Return sample weights, multiplied by a mask as Keras's losses do."""
    return keras_loss.apply_mask(sample_weight, mask, dtype, reduction)


def metrics_in_order(model: keras.Model, logs: Mapping[str, Any]) -> Any:
    """Return logs as ``model.evaluate()`` returns them: a list, or one number."""
    return model._flatten_metrics_in_order(dict(logs))  # noqa: SLF001


def metric_direction(model: keras.Model, name: str) -> str | None:
    """Return ``"up"`` if a higher value of a metric is better, ``"down"``, or None if unknown.

    The rules are those of Keras's callbacks with a ``monitor``; ``name`` has no ``val_``.
    """
    if name == "loss" or name in {metric.name for metric in output_loss_metrics(model)}:
        return "down"
    metrics = [part for each in model.metrics for part in getattr(each, "metrics", [each])]
    known = (getattr(each, "_direction", None) for each in metrics if each.name == name)
    return next(filter(None, known), None)


def traces_batches(callback: keras.callbacks.TensorBoard) -> bool:
    """Return whether TensorBoard profiles batches."""
    return bool(callback._should_trace)  # noqa: SLF001


def data_adapter(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    batch_size: int | None = None,
    steps_per_epoch: int | None = None,
    shuffle: bool = False,
    class_weight: Any = None,
) -> Any:
    """Return Keras's adapter of data, with the arguments of ``fit``."""
    return data_adapters.get_data_adapter(
        x,
        y,
        sample_weight,
        batch_size=batch_size,
        steps_per_epoch=steps_per_epoch,
        shuffle=shuffle and not isinstance(x, tf.data.Dataset),  # without the warning
        class_weight=class_weight,
    )


def split_arrays(arguments: Mapping[str, Any]) -> tuple[tuple[Any, Any, Any], Any]:
    """Return x, y and sample weights of ``fit``, and its validation data or what is held out."""
    arrays = tuple(arguments[name] for name in ("x", "y", "sample_weight"))
    held_out, fraction = arguments["validation_data"], arguments["validation_split"]
    if fraction and held_out is None:
        return array_slicing.train_validation_split(arrays, validation_split=fraction)
    return arrays, held_out


def weights_of_classes(y: Any, sample_weight: Any, class_weight: Any) -> Any:
    """Return the weights of rows by those of their classes, if there are any of classes."""
    if class_weight is None:
        return sample_weight
    if sample_weight is not None:
        raise ValueError("sample_weight and class_weight cannot be given at the same time")
    return data_adapter_utils.class_weight_to_sample_weights(y, class_weight)


class _FirstReplica:
    """A strategy for Keras's ``predict``: this task's first replica has its result."""

    scope = nullcontext

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._strategy = strategy

    def run(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        results = self._strategy.run(function, args)
        first = lambda value: self._strategy.experimental_local_results(value)[0]  # noqa: E731
        return keras.tree.map_structure(first, results)

    @staticmethod
    def experimental_distribute_dataset(dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset


@contextmanager
def on_one_replica(model: keras.Model) -> Iterator[keras.Model]:
    """Have a model predict on this task's first replica in here, without other tasks."""
    theirs = model._distribute_strategy  # noqa: SLF001
    model._distribute_strategy = _FirstReplica(model.distribute_strategy)  # noqa: SLF001
    try:
        yield model
    finally:
        model._distribute_strategy = theirs  # noqa: SLF001


@contextmanager
def array_shuffle(permute: Callable[[np.ndarray], np.ndarray]) -> Iterator[None]:
    """Replace how data sets of arrays that are made in here shuffle their rows.

    Parameters
    ----------
    permute
        Is given the numbers of the rows in each epoch; returns them in another order.
    """

    def shuffle(rows: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(permute, [rows], rows.dtype), rows.shape)

    original, tf.random.shuffle = tf.random.shuffle, shuffle
    try:
        yield
    finally:
        tf.random.shuffle = original


def save_without_collectives() -> None:
    """Let one task save and load alone; called before the default strategy is set.

    Keras makes an optimizer each time to list its attributes. With a strategy of several tasks,
    all of them must create its variables.
    """
    saving_lib.get_attr_skipset = cache(saving_lib.get_attr_skipset)
    saving_lib.get_attr_skipset("Optimizer")


def build_by_call(model: keras.Model, batch: Any) -> None:
    """Build a model, its loss, metrics and optimizer by a batch or its specification."""
    model._symbolic_build(data_batch=batch)  # noqa: SLF001
