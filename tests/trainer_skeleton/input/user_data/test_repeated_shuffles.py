"""Data sets that shuffle and repeat, and were read before: one order on any number of tasks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import tensorflow as tf

from distlaunch_trainer.fit.open_data import Caller, open_data
from distlaunch_trainer.input.user_data.repeated_shuffles import remember_readings

from ...conftest import task_of  # noqa: TID252 - tests are no package
from .reading import of_keras, of_script, together

Dataset = tf.data.Dataset


@pytest.fixture(autouse=True)
def _remembered(monkeypatch):
    """Remember readings until the end of a test."""
    monkeypatch.setattr(Dataset, "__iter__", Dataset.__iter__)
    remember_readings()


def rows(operation=lambda batches: batches):
    return operation(Dataset.range(1, 25).shuffle(24, seed=1).repeat().batch(6))


def mixed():
    parts = [rows(lambda batches: batches.unbatch()) for _ in range(2)]
    return Dataset.sample_from_datasets(parts, [0.5, 0.5], seed=3).batch(6).prefetch(2)


@pytest.mark.parametrize("create", [rows, mixed])
@pytest.mark.parametrize(("tasks", "replicas"), [(1, 1), (2, 1), (3, 2)])
def test_data_that_were_read_begin_as_if_they_were_not(create, tasks, replicas):
    def opened(task):
        def read():
            data = create()
            for _ in data.take(1 + 9 * task.role.rank):  # as far as TensorFlow may read ahead
                pass
            return data

        return of_script(read, task, steps=6)

    assert together(opened, tasks, replicas, 2) == of_keras(create, 2, steps_per_epoch=6)


def test_one_warning_says_that_the_order_is_not_that_of_keras():
    warned = []
    report = SimpleNamespace(warn=warned.append, log=str)
    data = rows()
    caller = Caller(task_of(0, 1), report, "fit() (train.py, line 9)")
    open_data(caller, data, steps_per_epoch=3)
    assert not warned
    next(iter(data))
    for _ in range(2):
        open_data(caller, data, steps_per_epoch=3)
    (text,) = warned
    assert "the data of fit() (train.py, line 9) shuffle before repeat() and were read" in text
    assert "create the data set again before this call" in text
