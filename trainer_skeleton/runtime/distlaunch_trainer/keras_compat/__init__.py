"""Everything private to Keras that this package uses, each name in a function of its own.

Keras may change these names in any release; `check_version` refuses releases that were not tested,
and tests/trainer_skeleton/keras_compat tests each function.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from importlib import import_module
from types import FrameType
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask
from keras.src.backend.common.symbolic_scope import SymbolicScope
from keras.src.losses import loss as keras_loss
from keras.src.saving.keras_saveable import KerasSaveable
from tensorflow.python.framework.auto_control_deps_utils import (
    get_read_only_resource_input_indices_graph,
)
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from distlaunch_trainer.errors import ModelError

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

mask_of = get_keras_mask
"""The mask that layers have attached to an output, None if there is none."""

set_mask = set_keras_mask
"""Attach a mask to an output."""

apply_mask = keras_loss.apply_mask
"""Sample weights, multiplied by a mask as Keras's losses do."""

Reduce = Callable[..., tf.Tensor]
"""``(values, sample_weight, mask, reduction, dtype)`` to a loss, as Keras reduces values."""


def check_version() -> None:
    """Refuse a version of Keras that is not supported."""
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


def tracked_variables(layer: keras.Layer) -> Iterator[tuple[str, tf.Variable]]:
    """Yield the TensorFlow variables that TensorFlow finds in a layer or model, with their names.

    A name is that of the innermost layer, and the attribute's.
    """
    view, pending, seen = tf.train.TrackableView(layer), [("", layer)], set()
    while pending:
        name, node = pending.pop(0)
        if isinstance(node, tf.Variable):
            yield name, node
        elif id(node) not in seen:
            seen.add(id(node))
            name = node.name if isinstance(node, keras.Layer) else name
            pending += [(f"{name}/{key}", each) for key, each in view.children(node).items()]


def is_called_by_keras() -> bool:
    """Return whether a function of Keras, or of a random generator, is on the stack of calls.

    Methods of the user's layers, losses, metrics and optimizers are functions of Keras.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package in ("keras", "tf_keras"):
            return True
        if isinstance(frame.f_locals.get("self"), (KerasSaveable, tf.random.Generator)):
            return True
        frame = frame.f_back
    return False


def intercept_variables(strategy: tf.distribute.Strategy, create: Callable[..., Any]) -> None:
    """Have `create` make a strategy's variables, given the function that does and its arguments."""
    extended = strategy.extended
    extended._create_variable = partial(create, extended._create_variable)  # noqa: SLF001


def plain_variable(variable: tf.Variable) -> tf.Variable:
    """Return a variable of no strategy with the value and the options of another one."""
    return ResourceVariable(
        variable.read_value(),
        trainable=variable.trainable,
        name=variable.name.partition(":")[0],
        dtype=variable.dtype,
        shape=variable.shape,
    )


def written_variables(graph: Any) -> list[tf.Variable]:
    """Return the variables that a traced function assigns, of replicas the distributed one."""
    read, found = only_read(graph), {}
    by_handle = {id(variable.handle): variable for variable in graph.variables}
    for handle, _ in graph.captures:
        if handle.dtype == tf.resource and id(handle) not in read:
            distributed = getattr(handle, "_distributed_container", lambda: None)()
            variable = by_handle.get(id(handle)) if distributed is None else distributed
            if variable is not None:  # not a table
                found[id(variable)] = variable
    return list(found.values())


class UnchangedVariables(keras.StatelessScope):
    """Leaves variables as they are: an update may be a tensor of an inner function's graph."""

    note_update: Callable[[tuple[keras.Variable, Any]], None] | None = None

    def add_update(self, update: tuple[keras.Variable, Any]) -> None:
        """Drop an update."""
        if self.note_update is not None:
            self.note_update(update)

    def get_current_value(self, ref: keras.Variable) -> Any:
        """Return the value that the scope was given, or the variable's: regularizers need it."""
        value = super().get_current_value(ref)
        return ref._value if value is None else value  # noqa: SLF001


@contextmanager
def variable_creation() -> Iterator[None]:
    """Create the variables of layers, losses and metrics that are called in here; update none."""
    kind: Any = type(tf.function(lambda: None))
    call = kind.__call__
    # A function of the user's would keep what is traced here, which updates nothing.
    kind.__call__ = lambda function, *args, **options: call(function._clone(None), *args, **options)  # noqa: SLF001
    try:
        with UnchangedVariables(collect_losses=True), SymbolicScope():
            yield
    finally:
        kind.__call__ = call


def loss_tracker(model: keras.Model) -> keras.metrics.Metric | None:
    """Return the metric with the mean of the loss, None if the model has none."""
    return model._loss_tracker  # noqa: SLF001 - a metric of the user's may be named "loss" too


def metric_function(metric: keras.metrics.Metric) -> Callable[..., Any]:
    """Return the function that a metric was compiled as, or else what updates it."""
    return getattr(metric, "_fn", type(metric).update_state)


def only_loss(model: keras.Model) -> keras.losses.Loss | None:
    """Return the loss that a built model was compiled with, None if there are none or several."""
    losses = model._compile_loss._flat_losses if model._compile_loss else None  # noqa: SLF001
    return losses[0].loss if losses is not None and len(losses) == 1 else None


def compiled_loss(model: keras.Model, y: Any, predicted: Any, sample_weight: Any) -> tf.Tensor:
    """Return the loss that a model was compiled with, without regularizers and ``add_loss()``."""
    return model._compile_loss(y, predicted, sample_weight)  # noqa: SLF001


def replace_losses(model: keras.Model, wrap: Callable[[Any], Any]) -> None:
    """Replace each loss of ``compile()`` by ``wrap(loss)``, if they are built."""
    losses = (model._compile_loss and model._compile_loss._flat_losses) or []  # noqa: SLF001
    losses[:] = [each._replace(loss=wrap(each.loss)) for each in losses]


def own_losses(layer: keras.Layer) -> list[tf.Tensor]:
    """Return what the last call of a layer added to the loss, without its inner layers."""
    return list(layer._get_own_losses())  # noqa: SLF001


def own_non_trainable_variables(layer: keras.Layer) -> list[keras.Variable]:
    """Return the weights that a layer's call may change, without its inner layers and metrics."""
    return list(layer._non_trainable_variables)  # noqa: SLF001


def only_read(graph: Any) -> set[int]:
    """Return the ids of the handles of variables that a traced function reads and never writes."""
    read = {id(graph.inputs[n]) for n in get_read_only_resource_input_indices_graph(graph)}
    return {id(handle) for handle, within in graph.captures if id(within) in read}


def has_seed_generators(layer: keras.Layer) -> bool:
    """Return whether a layer has a generator of random numbers, without its inner layers."""
    return bool(getattr(layer, "_seed_generators", None))


def replace_moments(layer: keras.layers.BatchNormalization, wrap: Callable[[Any], Any]) -> None:
    """Replace a built layer's function from inputs and mask to mean and variance of each channel.

    `wrap` is given Keras's function, and returns the one to use.
    """
    layer._moments = wrap(layer._moments)  # noqa: SLF001 - an attribute of this layer alone


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


def replace_added_losses(
    rescale: Callable[..., Any], added: Callable[[], list[tuple[keras.Layer, Any]] | None]
) -> None:
    """Have layers add ``rescale(layer, loss, frame=…)`` for each loss of ``add_loss()``.

    The frame is that of the call; Keras's own are for activity regularizers. Losses are kept in the
    list of `added` with their layers, if it returns one: a layer has one list for all replicas.
    """
    kind: Any = keras.Layer
    add_loss, get, clear = kind.add_loss, kind._get_own_losses, kind._clear_losses  # noqa: SLF001
    if hasattr(add_loss, "__wrapped__"):
        return

    @wraps(add_loss)
    def add(layer: keras.Layer, loss: Any) -> None:
        rescaled = partial(rescale, layer, frame=sys._getframe(1))  # noqa: SLF001
        loss = keras.tree.map_structure(rescaled, loss)
        add_loss(layer, loss)
        if (losses := added()) is not None:
            losses.extend((layer, each) for each in keras.tree.flatten(loss))

    def own(layer: keras.Layer) -> list[Any]:
        losses = added()
        return get(layer) if losses is None else [loss for of, loss in losses if of is layer]

    def clear_own(layer: keras.Layer) -> None:
        clear(layer)
        if losses := added():
            losses[:] = [(of, loss) for of, loss in losses if of is not layer]

    kind.add_loss, kind._get_own_losses, kind._clear_losses = add, own, clear_own  # noqa: SLF001


def _scale_unless(scale: Callable[[Any], Any], is_scaled: Callable[[], bool], value: Any) -> Any:
    return value if is_scaled() else scale(value)


def traces_batches(callback: keras.callbacks.TensorBoard) -> bool:
    """Return whether TensorBoard profiles batches."""
    return bool(callback._should_trace)  # noqa: SLF001


def has_built_losses(model: keras.Model) -> bool:
    """Return whether the loss and the metrics that a model was compiled with are built."""
    parts = model._compile_loss, model._compile_metrics  # noqa: SLF001
    return all(part is None or part.built for part in parts)
