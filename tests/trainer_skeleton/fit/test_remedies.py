"""What ends a script that is not for several replicas, or for another TensorFlow."""

from __future__ import annotations

import importlib
import sys

import pytest
import tensorflow as tf

from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.fit import remedies
from distlaunch_trainer.fit.program import Program


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


def test_a_script_of_a_package_is_told_of_the_key_to_write(tmp_path, monkeypatch):
    (tmp_path / "course").mkdir()
    (tmp_path / "course/task.py").write_text("from . import model\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(ImportError) as caught:
        Program("course/task.py", None, ()).run()
    assert "write script_module: course.task in place of script" in remedies.remedy(caught.value)


def test_updates_in_a_condition_are_named():
    """As in a train_step() that accumulates gradients and applies them in tf.cond()."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])

    def update() -> tf.Tensor:
        return tf.distribute.get_replica_context().merge_call(lambda _: tf.constant(1))

    def step() -> tf.Tensor:
        return tf.cond(tf.timestamp() > 0, update, lambda: tf.constant(0))

    with pytest.raises(RuntimeError) as caught:
        tf.function(lambda: strategy.run(step), autograph=False)()
    assert "gradient_accumulation_steps" in remedies.remedy(caught.value)


def test_graphs_and_sessions_are_refused(monkeypatch):
    module = importlib.import_module("tensorflow.compat.v1")
    names = ("disable_v2_behavior", "disable_eager_execution")
    for name in names:
        monkeypatch.setattr(module, name, getattr(module, name))
    remedies.refuse_tensorflow_1()
    for name in names:
        with pytest.raises(ModelError, match=f"{name}.*TensorFlow 1"):
            getattr(module, name)()
