"""Variables of this task's host, for what a step counts beside the model."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable


def host_variable(value: Any, dtype: tf.DType | None = None) -> tf.Variable:
    """Return a variable on the CPU that no strategy distributes, also within its scope."""
    with tf.device("CPU:0"):
        return ResourceVariable(value, trainable=False, dtype=dtype)
