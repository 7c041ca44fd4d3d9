"""What ends a script that is not for several replicas, or for another TensorFlow."""

from __future__ import annotations

import importlib

import pytest
import tensorflow as tf

from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.fit import remedies


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda: tf.estimator, "TensorFlow 1 or its Estimators"),
        (lambda: tf.placeholder, "TensorFlow 1"),
        (lambda: tf.train.AdamOptimizer, "TensorFlow 1"),
        (lambda: importlib.import_module("tensorflow.contrib"), "TensorFlow 1"),
        (lambda: tf.placehodler, ""),
        (lambda: importlib.import_module("tensorflow.contribs"), ""),
    ],
)
def test_tensorflow_1_is_named_where_it_is_used(use, expected):
    with pytest.raises((AttributeError, ModuleNotFoundError)) as caught:
        use()
    remedy = remedies.remedy(caught.value)
    assert expected in remedy
    assert bool(remedy) == bool(expected)


def test_graphs_and_sessions_are_refused(monkeypatch):
    module = importlib.import_module("tensorflow.compat.v1")
    names = ("disable_v2_behavior", "disable_eager_execution")
    for name in names:
        monkeypatch.setattr(module, name, getattr(module, name))
    remedies.refuse_tensorflow_1()
    for name in names:
        with pytest.raises(ModelError, match=f"{name}.*TensorFlow 1"):
            getattr(module, name)()
