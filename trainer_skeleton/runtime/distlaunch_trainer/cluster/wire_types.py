"""The types in which values are exchanged: TensorFlow's collectives and NCCL take few."""

from __future__ import annotations

from functools import wraps
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import collective_ops

# TensorFlow broadcasts and gathers no bfloat16, and NCCL, as its wheels build it, sums none.
_TAKEN = (tf.float16, tf.float32, tf.float64, tf.int32, tf.int64)


def wire_type(dtype: tf.DType) -> tf.DType:
    """Return the type in which values of a type are exchanged, which holds each of them."""
    if dtype in _TAKEN or not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
        return dtype
    return tf.float32 if dtype.is_floating else tf.int64


def broadcast_initial_values() -> None:
    """Let MultiWorkerMirroredStrategy create variables of any type, with the chief's values."""
    send, receive = collective_ops.broadcast_send, collective_ops.broadcast_recv
    if hasattr(send, "__wrapped__"):
        return

    @wraps(send)
    def send_as_wire_type(value: tf.Tensor, shape: Any, dtype: tf.DType, *key: Any) -> Any:
        wire = wire_type(dtype)
        return send(tf.cast(value, wire), shape, wire, *key)

    @wraps(receive)
    def receive_as_wire_type(shape: Any, dtype: tf.DType, *key: Any) -> tf.Tensor:
        return tf.cast(receive(shape, wire_type(dtype), *key), dtype)

    collective_ops.broadcast_send = send_as_wire_type
    collective_ops.broadcast_recv = receive_as_wire_type
