"""Losses that are sums over the rows of a batch, found in the graph that computes them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_SUMS = {"Add", "AddN", "AddV2", "Pack", "Sub"}
_ELEMENTWISE = _SUMS | {"Cast", "Identity", "Maximum", "Mul", "Neg"}
_QUOTIENTS = {"DivNoNan", "RealDiv"}


def sums_rows(value: tf.Tensor) -> bool:
    """Return whether a loss has a sum over the rows of a batch that is not divided by a count."""
    if value.shape.rank != 0:
        return True  # tapes sum the numbers of a vector
    pending, seen = [value], set()
    while pending:
        operation = pending.pop().op
        if operation in seen:
            continue
        seen.add(operation)
        if _is_sum(operation):
            return True
        if operation.type in _ELEMENTWISE:
            pending.extend(operation.inputs)
        elif operation.type in _QUOTIENTS and _is_constant(operation.inputs[1]):
            pending.append(operation.inputs[0])
    return False


def is_row_sum(value: tf.Tensor) -> bool:
    """Return whether all of a loss is a sum over the rows of a batch: no term is another."""
    operation = value.op
    inputs = list(operation.inputs)
    if _is_sum(operation):
        return True
    if operation.type in _SUMS:
        return all(map(is_row_sum, inputs))
    if operation.type == "Mul":
        return sum(map(is_row_sum, inputs)) == 1
    if operation.type in _QUOTIENTS and not _is_constant(inputs[1]):
        return False
    is_linear = operation.type in _QUOTIENTS | {"Cast", "Identity", "Neg"}
    return is_linear and is_row_sum(inputs[0])


def _is_sum(operation: Any) -> bool:
    """Return whether an operation sums over the rows, of which there is no static number."""
    if operation.type != "Sum":
        return False
    value, axes = operation.inputs
    if not value.shape.rank or value.shape[0] is not None:
        return False
    axes = tf.get_static_value(axes)
    return axes is None or 0 in axes.ravel() % value.shape.rank


def _is_constant(value: tf.Tensor) -> bool:
    return tf.get_static_value(value) is not None
