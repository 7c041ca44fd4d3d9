"""Calls of a library's methods by a script, with other arguments."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

# Keras's export() imports it, which would replace `tf.saved_model` and what is changed there.
import tensorflow.saved_model  # noqa: F401


def intercepted(
    function: Callable[..., Any],
    intercept: Callable[[Callable[..., Any], inspect.BoundArguments], Any],
) -> Callable[..., Any]:
    """Return a function whose calls are given to `intercept`, with the arguments by name."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        arguments = signature.bind(*args, **options)
        arguments.apply_defaults()
        return intercept(function, arguments)

    return call


def set_verbosity(values: dict[str, Any], *, is_chief: bool) -> None:
    """Have Keras print on the chief only, and no progress bars into files and pipes."""
    if not is_chief:
        values["verbose"] = 0
    elif values["verbose"] == "auto" and not sys.stdout.isatty():
        values["verbose"] = 2
