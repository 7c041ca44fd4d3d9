"""Reads a user's batches as the loop does, by each of some tasks that are simulated."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.tensorflow.trainer import TFEpochIterator

from distlaunch_trainer.fit.open_data import Caller, open_data
from distlaunch_trainer.input.data_setup import load_data
from distlaunch_trainer.options import Settings, parser
from distlaunch_trainer.training_state import Progress, TrainingState

from ...conftest import task_of  # noqa: TID252 - tests are no package


def loaded(create, task, *arguments, report=None, start=None, validation=lambda: None):
    """Return the data of a project, whose training() is ``create``, on a task."""
    settings = Settings.of(parser().parse_args([*arguments, "--seed=5"]))
    report = report or SimpleNamespace(warn=str, log=str)
    load = partial(load_data, settings, task, "", report, training=create, validation=validation)
    if start is not None:  # a run with these options was stopped
        start = replace(start, options=load(start=None).options)
    return load(start=start)


def of_project(create, task, *arguments, **options):
    """Return the training data of a project on a task."""
    return loaded(create, task, *arguments, **options).training


def of_script(create, task, *_, steps=None, **options):
    """Return the data of a call of fit() with what ``create`` returns on a task."""
    keras.utils.set_random_seed(5)
    report = SimpleNamespace(warn=str, log=str)
    return open_data(Caller(task, report, "fit()"), create(), steps_per_epoch=steps, **options)


def read_epoch(reader, task, step=0, done=0, most=None):
    """Return the rows of each step of an epoch by each replica of a task, in the replicas' order.

    They are checked for the counts that come with them. With ``most`` the epoch does not end.
    """
    reader.begin(step, done)
    steps = []
    while reader.steps is None or done + len(steps) < reader.steps:
        parts = [reader.iterator.get_next() for _ in task.replica_ids]
        total = int(parts[0][2])
        at = step + done + len(steps)
        if reader.may_end_early and reader.is_end(np.full(task.replicas, total), at):
            break
        steps.append([rows_of(data, int(own)) for data, own, *_ in parts])
        if any(int(own) == 0 for _, own, *_ in parts):
            assert reader.has_empty_replicas(at)
        assert {int(part[2]) for part in parts} == {total}
        steps[-1].append(total)
        if len(steps) == most:
            return steps
    reader.end(done + len(steps))
    return steps


def rows_of(data, count):
    """Return the first column of the first part of a batch, of so many rows."""
    part = next(part for part in tf.nest.flatten(data) if part is not None)
    if isinstance(part, tf.RaggedTensor):
        rows = [int(row[0]) for row in part]
    else:
        if isinstance(part, tf.SparseTensor):
            part = tf.sparse.to_dense(part)
        rows = np.asarray(part).reshape(len(part), -1)[:, 0].astype(int).tolist()
    assert len(rows) == max(1, count)
    return rows[:count]


def together(opened, tasks, replicas, epochs, read=read_epoch):
    """Return the batches of each epoch, put together of the rows of all replicas.

    ``opened`` returns the data of a task.
    """
    of_tasks = []
    for rank in range(tasks):
        task = task_of(rank, tasks, replicas)
        reader = opened(task).reader(task)
        step, read_epochs = 0, []
        for _ in range(epochs):
            read_epochs.append(read(reader, task, step))
            step += len(read_epochs[-1])
        if reader._data.parts.division:  # each replica has rows of its task's
            read_epochs = [[[mixed(s[:-1]), s[-1]] for s in epoch] for epoch in read_epochs]
        of_tasks.append(read_epochs)
    return [merged([epoch[number] for epoch in of_tasks]) for number in range(epochs)]


def mixed(parts):
    """Return rows of which part r of R has the rows r, r + R, ..."""
    rows = [None] * sum(map(len, parts))
    for number, part in enumerate(parts):
        rows[number :: len(parts)] = part
    return rows


def merged(of_tasks):
    """Return the batches of an epoch, of which each task has the rows of its replicas."""
    batches = []
    for parts in zip(*of_tasks, strict=True):
        batches.append(mixed([rows for part in parts for rows in part[:-1]]))
        assert {part[-1] for part in parts} == {len(batches[-1])}
    return batches


def of_keras(create, epochs, *, is_counted=False, **options):
    """Return the batches of each epoch as plain Keras reads them in one process."""
    keras.utils.set_random_seed(5)
    data = create()
    if is_counted:  # the trainer reads a pass to count it
        list(data)
    strategy = tf.distribute.get_strategy()
    iterator = TFEpochIterator(x=data, distribute_strategy=strategy, **options)
    iterator.reset()
    return [keras_epoch(iterator) for _ in range(epochs)]


def keras_epoch(iterator):
    batches = []
    for _, _, data in iterator:
        with warnings.catch_warnings(), iterator.catch_stop_iteration():
            warnings.simplefilter("ignore")  # of data that end
            batch = next(data)
            first = next(part for part in tf.nest.flatten(batch) if part is not None)
            count = first.nrows() if isinstance(first, tf.RaggedTensor) else first.shape[0]
            batches.append(rows_of(batch, int(count)))
            continue
        break
    return batches


def resumed(steps, epochs, position, *, begun=False):
    """Return the state of a run that is resumed after some steps and epochs."""
    begun = {"on_epoch_begin": {}} if begun else {}
    history = [{}] * epochs
    progress = Progress(step=steps, history=history, position=position, begun=begun)
    return TrainingState(None, progress)
