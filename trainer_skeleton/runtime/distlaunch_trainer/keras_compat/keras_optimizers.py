"""Optimizers of Keras: their private names, and their branches on several replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from typing import Any

import keras
import tensorflow as tf
from keras.src.optimizers import base_optimizer


def parts(optimizer: keras.optimizers.Optimizer) -> list[Any]:
    """Return the optimizers that update variables for one that wraps others, else itself.

    A LossScaleOptimizer wraps one, a MultiOptimizer (Keras 3.15) one for each kind of variable.
    """
    if inner := getattr(optimizer, "inner_optimizer", None):
        return parts(inner)
    several = getattr(optimizer, "optimizers", None)
    return [optimizer] if several is None else list(several)


def intercept_updates(current_update: Callable[[], Callable[..., Any] | None]) -> None:
    """Have optimizers call what `current_update` returns, unless it is None, for ``apply()``.

    That function is given the optimizer, its ``apply()``, and the arguments of the call as lists.
    """
    kinds: list[Any] = [keras.optimizers.Optimizer]
    for number, kind in enumerate(kinds):
        kinds += kind.__subclasses__()
        is_own = not number or "apply" in vars(kind)
        if is_own and not hasattr(kind.apply, "is_intercepted"):
            kind.apply = _intercepted(kind.apply, current_update)


def _intercepted(apply: Callable[..., Any], current_update: Callable[[], Any]) -> Any:
    @wraps(apply)
    def intercepted(optimizer: Any, grads: Iterable[Any], trainable_variables: Any = None) -> Any:
        update = current_update()
        if update is None:
            return apply(optimizer, grads, trainable_variables)
        variables = None if trainable_variables is None else list(trainable_variables)
        return update(optimizer, partial(apply, optimizer), list(grads), variables)

    marked: Any = intercepted
    marked.is_intercepted = True
    return marked


def use_current_strategy(optimizer: keras.optimizers.Optimizer) -> None:
    """Have an optimizer update variables of the current strategy in place of its first one."""
    optimizer._distribution_strategy = tf.distribute.get_strategy()  # noqa: SLF001


def disable_gradient_aggregation(optimizer: keras.optimizers.Optimizer) -> None:
    """Keep an optimizer from summing gradients over the replicas."""
    for each in (optimizer, *parts(optimizer)):
        # They are summed before (`step/all_reduce.py`): Keras clips first and then sums.
        each._all_reduce_sum_gradients = list  # noqa: SLF001


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


def adds_gradients(optimizer: keras.optimizers.Optimizer) -> bool:
    """Return whether an optimizer does the same with a sum of gradients as with each of them.

    Others square the duplicate rows of a sparse gradient one by one.
    """
    own = getattr(optimizer, "inner_optimizer", optimizer)
    clips = own.clipnorm or own.clipvalue or own.global_clipnorm
    return type(own) is keras.optimizers.SGD and not clips


def compile_updates(optimizer: keras.optimizers.Optimizer, is_compiled: Callable[[], bool]) -> None:
    """Have XLA compile an optimizer's clipping and its updates of all variables of a device.

    Keras does so where it compiles whole steps. Updates by rows of sparse gradients are left out:
    their number may be another in each step. `is_compiled` returns whether to compile the step that
    is traced.
    """
    if parts(optimizer) != [optimizer]:
        for part in parts(optimizer):
            compile_updates(part, is_compiled)
        return
    own: Any = optimizer
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
    """Return an optimizer's learning rate: a variable, a schedule or a function.

    None is returned if it has none, as a MultiOptimizer, or not as Keras's have it.
    """
    is_one = len(own := parts(optimizer)) == 1
    return getattr(own[0], "_learning_rate", None) if is_one else None


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


def use_cross_replica_cond() -> None:
    """Let Keras's optimizers branch for all replicas at once, if there are several."""
    if not isinstance(base_optimizer.ops, _Operations):
        base_optimizer.ops = _Operations(base_optimizer.ops)


class _Operations:
    """Keras's operations with a ``cond`` that may update mirrored variables."""

    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._theirs, name)

    def cond(self, condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        """Run one of two functions that return nothing."""
        context = tf.distribute.get_replica_context()
        if context is None or context.num_replicas_in_sync == 1:
            return self._theirs.cond(condition, then, otherwise)

        def on_each_replica(strategy: tf.distribute.Strategy, condition: Any) -> None:
            def run(function: Callable[[], Any]) -> tf.Tensor:
                strategy.extended.call_for_each_replica(function)
                return tf.constant(True)

            of_one = strategy.experimental_local_results(condition)[0]
            tf.cond(of_one, lambda: run(then), lambda: run(otherwise))

        # Mirrored variables are updated by merge_call, which TensorFlow refuses within tf.cond.
        return context.merge_call(on_each_replica, args=(tf.convert_to_tensor(condition),))
