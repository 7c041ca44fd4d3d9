"""Evaluation: the same numbers on any number of workers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.input.batches import Data, Reader
from distlaunch_trainer.input.order.plan import end_of_similar_steps
from distlaunch_trainer.step.step_functions import StepFunctions

# Each function call from Python costs time, and stop signals wait for its end.
_STEPS_PER_EXECUTION = 50


class Evaluator:
    """Evaluates a model on each example of the data once, on all tasks together.

    The test hooks of the callbacks are called. If some task `calls_batch_hooks`, the evaluation
    takes as many steps at once as ``compile(steps_per_execution=...)`` requests.
    """

    def __init__(
        self,
        model: keras.Model,
        functions: StepFunctions,
        cluster: Cluster,
        data: Data,
        *,
        callbacks: keras.callbacks.CallbackList | None = None,
        calls_batch_hooks: bool = False,
    ) -> None:
        self._model = model
        self._functions = functions
        self._cluster = cluster
        self._data = data
        self._callbacks = callbacks or keras.callbacks.CallbackList()
        self._calls_batch_hooks = calls_batch_hooks
        self._reader: Reader | None = None

    def evaluate(
        self,
        steps_per_execution: int = _STEPS_PER_EXECUTION,
        must_stop: Callable[[], bool] = lambda: False,
    ) -> dict[str, Any] | None:
        """Return the loss and the metrics, each a number or an array; None if the run must stop.

        `must_stop` agrees on that with all tasks, after so many steps each. The model's metrics are
        reset before and keep the results afterwards.
        """
        self._model.reset_metrics()
        self._model.stop_evaluating = False
        self._callbacks.on_test_begin()
        if self._reader is None or self._reader.is_for_once:
            self._reader = self._data.reader(self._cluster)
        reader = self._reader
        reader.begin(0)
        done, steps = 0, sys.maxsize if reader.steps is None else reader.steps
        if self._calls_batch_hooks:
            steps_per_execution = self._model.steps_per_execution
        while done < steps:
            block = min(steps - done, steps_per_execution)
            self._callbacks.on_test_batch_begin(done)
            executed = self._evaluate_steps(reader, done, done + block) - done
            if not executed:
                break
            logs = self._functions.logs() if self._calls_batch_hooks else None
            # As `fit` counts, also at the end, where an execution may be shorter.
            self._callbacks.on_test_batch_end(done + steps_per_execution - 1, logs)
            done += executed
            if executed < block:
                break
            if done < steps and must_stop():
                self._callbacks.on_test_end(self._functions.logs())
                return None
            if self._calls_batch_hooks and self._agree_to_end():
                self._reader = None  # the next evaluation starts with the first batch
                break
        reader.end(done)
        logs = self._functions.logs()
        self._callbacks.on_test_end(logs)
        return logs

    def _evaluate_steps(self, reader: Reader, first: int, end: int) -> int:
        """Evaluate some steps; return how many are done then, less than `end` at the data's end."""
        while first < end:
            # Only the first step shows whether replicas exchange rows.
            is_single = not first or reader.may_end_early or self._functions.replicas.gathers_rows
            last = first + 1 if is_single else end
            last = end_of_similar_steps(reader.has_empty_replicas, first, last)
            rows = self._functions.evaluate(
                reader.iterator,
                tf.constant(last - first),
                has_empty_replicas=reader.has_empty_replicas(first),
                form=reader.form,
                may_end=reader.may_end_early,
            )
            if rows is not None and reader.is_end(rows.numpy(), first):
                break
            first = last
        return first

    def _agree_to_end(self) -> bool:
        """Agree whether a callback has set ``model.stop_evaluating``."""
        is_set = np.array(self._model.stop_evaluating, np.int64)
        return bool(self._cluster.all_reduce_sum(is_set) > 0)
