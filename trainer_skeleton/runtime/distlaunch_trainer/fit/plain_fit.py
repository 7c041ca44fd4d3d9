"""Keras's ``fit`` on a project's model and batches: the same work as the trainer's, without it."""

from __future__ import annotations

import argparse
import time
from importlib import import_module
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer.errors import DataError, ModelError
from distlaunch_trainer.input.data_setup import AnyData, load_data
from distlaunch_trainer.model.user_model import (
    checked_callbacks,
    create_compiled_model,
    set_learning_rate,
)
from distlaunch_trainer.report.report import Report, epoch_record, write_summary
from distlaunch_trainer.run_facts import run_facts
from distlaunch_trainer.run_start import join_run


def fit_project(options: argparse.Namespace) -> None:
    """Train ``model.py`` of a package on its ``data.py`` by ``fit``, and write ``summary.json``.

    ``fit`` gets the batches of the trainer's own input pipeline, so only the training differs.
    """
    joined = join_run(options)
    if joined.cluster.replicas > 1:
        raise ModelError("fit() is compared on one replica: use one worker and one device")
    prefix = f"{options.package}." if options.package else ""
    user_model, user_data = (import_module(f"{prefix}{name}") for name in ("model", "data"))
    if hasattr(user_model, "train_step"):
        raise ModelError(
            "train_step() of model.py is called by the trainer and not by fit(): compare numbers "
            "of workers instead"
        )
    data = load_data(
        joined.settings,
        joined.cluster,
        joined.folders.job,
        joined.report,
        start=None,
        training=user_data.training,
        validation=getattr(user_data, "validation", lambda: None),
    )
    steps = data.options.steps_per_epoch
    if not steps:
        raise DataError("fit() needs the number of steps: give --steps-per-epoch")
    keras.utils.set_random_seed(data.options.seed)
    model = create_compiled_model(user_model.create_model)
    if options.learning_rate:
        set_learning_rate(model, options.learning_rate)
    facts = run_facts(data, options.epochs, joined.cluster)
    joined.report.event("ready", step=0, **facts)
    plan = data.training.plan
    is_one_pass = plan.examples and steps == plan.steps
    examples = plan.examples if is_one_pass else steps * plan.global_batch
    measured = _EpochTimes(joined.report, steps, examples)
    validation = data.validation
    model.fit(
        _batches(data.training),
        epochs=options.epochs,
        steps_per_epoch=steps,
        validation_data=_batches(validation) if validation else None,
        validation_steps=validation.plan.steps if validation else None,
        callbacks=[*checked_callbacks(getattr(user_model, "callbacks", list)()), measured],
        verbose=0,
    )
    write_summary(
        joined.folders.job,
        {
            **facts,
            "tasks": list(joined.cluster.role.peers),
            "steps": steps * len(measured.records),
            "epochs": measured.records,
            "timing": None,
        },
    )
    joined.report.event("end", step=steps * len(measured.records))


def _batches(data: AnyData) -> tf.data.Dataset:
    """Return the batches without the numbers of rows that the trainer's steps need."""
    return data.of_one_replica().map(lambda batch, *_: batch)


class _EpochTimes(keras.callbacks.Callback):
    """The last callback: measures the training of each epoch, without its validation."""

    def __init__(self, report: Report, steps: int, examples: int) -> None:
        super().__init__()
        self.records: list[dict[str, Any]] = []
        self._report, self._steps, self._examples = report, steps, examples
        self._started = self._seconds = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        self._started, self._seconds = time.perf_counter(), 0.0

    def on_test_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        self._seconds = time.perf_counter() - self._started

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        seconds = self._seconds or time.perf_counter() - self._started
        rate = float(np.asarray(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))
        record = epoch_record(
            epoch,
            (epoch + 1) * self._steps,
            logs or {},
            examples=self._examples,
            seconds=seconds,
            learning_rate=rate,
        )
        self.records.append(record)
        self._report.event("epoch", **record)
