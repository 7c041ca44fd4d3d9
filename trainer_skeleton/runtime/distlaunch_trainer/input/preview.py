"""The first rows of the data, without a cluster: for a project's quick test."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.options import Settings
from distlaunch_trainer.report.report import Report

from .batch_rows import count_rows, take_rows
from .data_setup import load_data


class _Silent(Report):
    def log(self, text: str) -> None:
        """Print nothing."""

    def warn(self, text: str) -> None:
        """Print nothing: warnings are about whole runs."""


def first_batch(function: Callable[[], Any], rows: int = 8) -> tf.data.Dataset:
    """Return the first rows of the data as a data set of one batch, for ``fit`` and ``evaluate``.

    Parameters
    ----------
    function
        ``training`` or ``validation`` of ``trainer/data.py``, if it does not return None.
    rows
        Rows of the batch, if the data have as many.

    Raises
    ------
    DataError
        If the data cannot be used.
    """
    cluster = Cluster(Role(), tf.distribute.get_strategy())
    settings = Settings(shuffle=0, steps_per_epoch=1)
    with tempfile.TemporaryDirectory() as folder:
        report = _Silent(cluster.role, folder)
        loaded = load_data(
            *(settings, cluster, folder, report),
            start=None,
            training=function,
            validation=lambda: None,
        )
        data, *_ = next(iter(loaded.training.of_one_replica()))
    taken = tf.range(tf.minimum(count_rows(data), rows))
    return tf.data.Dataset.from_tensors(take_rows(data, taken))
