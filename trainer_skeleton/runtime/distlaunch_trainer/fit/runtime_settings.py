"""Settings of TensorFlow's runtime that a script makes after the strategy has started it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import tensorflow as tf

_ENV = "set {} under env: in distlaunch.yaml"
_THREADS = "threading.set_{}_op_parallelism_threads"
_VISIBLE = _ENV.format("CUDA_VISIBLE_DEVICES")
_LOGICAL = "'distlaunch local --devices N' makes virtual devices"

_REMEDIES = {
    _THREADS.format("intra"): _ENV.format("TF_NUM_INTRAOP_THREADS"),
    _THREADS.format("inter"): _ENV.format("TF_NUM_INTEROP_THREADS"),
    "experimental.set_memory_growth": _ENV.format('TF_FORCE_GPU_ALLOW_GROWTH: "true"'),
    "set_visible_devices": _VISIBLE,
    "experimental.set_visible_devices": _VISIBLE,
    "set_logical_device_configuration": _LOGICAL,
    "experimental.set_virtual_device_configuration": _LOGICAL,
}


def ignore_late_settings(warn: Callable[[str], None]) -> None:
    """Have functions of ``tf.config`` that come too late warn instead of raising an error.

    The strategy exists before the script, and with it TensorFlow's threads and devices.
    """
    for path, remedy in _REMEDIES.items():
        parent, _, name = path.rpartition(".")
        module = attrgetter(parent)(tf.config) if parent else tf.config
        text = f"tf.config.{path}() of the script is ignored, as TensorFlow has started: {remedy}"
        setattr(module, name, _lenient(getattr(module, name), functools.partial(warn, text)))


def _lenient(function: Callable[..., None], warn: Callable[[], None]) -> Callable[..., None]:
    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> None:
        try:
            function(*args, **options)
        except RuntimeError as error:
            if "initializ" not in str(error):  # ... cannot be modified after initialization
                raise
            warn()

    return call
