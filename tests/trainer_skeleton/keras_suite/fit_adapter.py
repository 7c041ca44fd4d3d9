"""Keras's `fit`, `evaluate` and `predict`, replaced as in a script that trains on one replica."""

from __future__ import annotations

import tempfile

import tensorflow as tf
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.fit.session import Session
from distlaunch_trainer.options import Settings
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.step import random_draws
from distlaunch_trainer.task.stop_signal import StopSignal


def replace_fit() -> Session:
    """Have all models train by the loop, those of Keras's tests too, which are layers."""
    random_draws.install()
    folder = tempfile.mkdtemp(prefix="distlaunch-")
    cluster = Cluster(Role(), tf.distribute.get_strategy())
    session = Session(cluster, new_report(), StopSignal(), folder, Settings())
    session.install(TensorFlowTrainer)
    return session


def new_report() -> Report:
    """Return a report, whose writers end with the tests that reset TensorFlow."""
    return Report(Role(), tempfile.mkdtemp(prefix="distlaunch-"))
