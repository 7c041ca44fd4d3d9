"""The strategy that a script gets: that of the cluster, whichever it makes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import keras
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.keras_compat import keras_optimizers

from .interception import intercepted

_NO_PARAMETER_SERVERS = (
    "fit() of a script trains without parameter servers: remove the strategy and the servers, or "
    "use the trainer ('distlaunch init --starter parameter-server')"
)
_REMEDIES = {
    "ParameterServerStrategy": _NO_PARAMETER_SERVERS,
    "Server": _NO_PARAMETER_SERVERS,
    "TPUStrategy": "the tasks of this cluster train on CPUs and GPUs: remove the strategy",
}

_NOT_CHOSEN = {None, tf.VariableAggregation.NONE, tf.VariableSynchronization.AUTO}


def set_strategy(strategy: tf.distribute.Strategy, warn: Callable[[str], None]) -> None:
    """Make a strategy the default one, and the one that a script gets where it makes its own.

    A second MultiWorkerMirroredStrategy of a process cannot be made, and a strategy of one machine
    would train every task by itself.
    """
    names = _strategies()
    own = next(name for kind, name in names.items() if type(strategy) is kind)
    warned: set[str] = set()

    def replacement(requested: Any) -> tf.distribute.Strategy:
        name = next((names[kind] for kind in requested.__mro__ if kind in names), "")
        if name in _REMEDIES:
            _refuse(name)
        if name != own and name not in warned:  # once for each
            warned.add(name)
            warn(f"{name} of the script is {own} on this cluster")
        return strategy

    for kind in names:
        kind.__new__ = lambda requested, *_, **__: replacement(requested)
        kind.__init__ = lambda *_, **__: None
    tf.distribute.Server.__init__ = lambda *_, **__: _refuse("Server")
    tf.distribute.experimental_set_strategy(strategy)
    _leave_other_variables_alone(strategy)
    # With variables of a strategy, its functions cannot be called outside of its replicas.
    tf.saved_model.load = intercepted(tf.saved_model.load, _call_alone)
    optimizer = keras.optimizers.Optimizer
    optimizer.apply = intercepted(optimizer.apply, _apply_alone)


def _leave_other_variables_alone(strategy: tf.distribute.Strategy) -> None:
    """Make variables plain ones that neither Keras makes nor the script in the strategy's scope.

    One of a strategy cannot be assigned by slices nor be the source of a gradient in eager code.
    """
    enter_scope = strategy.scope
    depth = 0  # of the scopes that the script has entered

    @contextmanager
    def scope() -> Iterator[tf.distribute.Strategy]:
        nonlocal depth
        entered = int(tf.distribute.has_strategy())  # else it becomes the default strategy
        depth += entered
        try:
            with enter_scope():
                yield strategy
        finally:
            depth -= entered

    def create(create_distributed: Callable[..., Any], *args: Any, **options: Any) -> Any:
        variable = create_distributed(*args, **options)
        chosen = {options.get("aggregation"), options.get("synchronization")} - _NOT_CHOSEN
        if depth or chosen or not tf.executing_eagerly() or keras_compat.is_called_by_keras():
            return variable
        return keras_compat.plain_variable(variable)  # with the chief's value, on all tasks

    strategy.scope = scope
    keras_compat.intercept_variables(strategy, create)


def _apply_alone(function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
    """Update variables that are of no strategy, which Keras does in replicas only."""
    variables = arguments.arguments["trainable_variables"]
    is_alone = variables and not any(hasattr(v, "distribute_strategy") for v in variables)
    if not is_alone or not all(isinstance(variable, tf.Variable) for variable in variables):
        return function(*arguments.args, **arguments.kwargs)

    def apply(optimizer: keras.optimizers.Optimizer, *args: Any, **options: Any) -> Any:
        keras_optimizers.use_current_strategy(optimizer)
        return function(optimizer, *args, **options)

    return _call_alone(apply, arguments)


def _call_alone(function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
    """Call a function as in one process."""
    strategy = tf.distribute.get_strategy()
    try:
        tf.distribute.experimental_set_strategy(None)
    except RuntimeError:  # in a step on replicas
        return function(*arguments.args, **arguments.kwargs)
    try:
        return function(*arguments.args, **arguments.kwargs)
    finally:
        tf.distribute.experimental_set_strategy(strategy)


def _refuse(name: str) -> NoReturn:
    raise ModelError(f"the script makes a {name}: {_REMEDIES[name]}")


def _strategies() -> dict[Any, str]:
    """Return the names of TensorFlow's strategies by their classes."""
    v1 = tf.compat.v1.distribute
    modules = (tf.distribute, tf.distribute.experimental, v1, v1.experimental)
    return {
        value: name
        for module in modules
        for name, value in vars(module).items()
        if name.endswith("Strategy") and name != "Strategy"
    }
