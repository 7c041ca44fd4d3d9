"""The strategy that a script gets: that of the cluster, whichever it makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def set_strategy(strategy: tf.distribute.Strategy, warn: Callable[[str], None]) -> None:
    """Make a strategy the default one, and the one that a script gets where it makes its own.

    A second MultiWorkerMirroredStrategy of a process cannot be made, and a MirroredStrategy would
    train every task by itself.

    Parameters
    ----------
    strategy
        The strategy of several replicas.
    warn
        Is called with a warning if the script makes a strategy of another class.
    """
    for kind in (tf.distribute.MultiWorkerMirroredStrategy, tf.distribute.MirroredStrategy):
        _replace_constructor(kind, strategy, warn)
    tf.distribute.experimental_set_strategy(strategy)


def _replace_constructor(
    kind: Any, strategy: tf.distribute.Strategy, warn: Callable[[str], None]
) -> None:
    def new(requested: Any, *_: Any, **__: Any) -> tf.distribute.Strategy:
        if not isinstance(strategy, requested):
            warn(f"{requested.__name__} of the script is {type(strategy).__name__} on this cluster")
        return strategy

    kind.__new__ = new
    kind.__init__ = lambda *_, **__: None
