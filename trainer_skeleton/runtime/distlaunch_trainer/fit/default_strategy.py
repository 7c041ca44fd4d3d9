"""The strategy that a script gets: that of the cluster, whichever it makes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import tensorflow as tf

from distlaunch_trainer.errors import ModelError

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
    tf.saved_model.load = intercepted(tf.saved_model.load, _load_alone)


def _load_alone(function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
    """Load a SavedModel as in one process.

    With variables of a strategy, its functions cannot be called outside of its replicas.
    """
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
