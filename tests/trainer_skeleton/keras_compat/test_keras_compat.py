"""The private names of Keras that the trainer uses do what it relies on."""

from __future__ import annotations

import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.saving import saving_lib

from distlaunch_trainer import keras_compat
from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.keras_compat import fit_calls, keras_optimizers

layers = keras.layers
ROOT = Path(__file__).parents[3]


def nested():
    inner = keras.Sequential([layers.Dense(2, name="inner"), layers.Dropout(0.1, name="drop")])
    model = keras.Sequential([layers.Input((3,)), inner, layers.Dense(1, name="outer")])
    model.compile("sgd", "mse", metrics=["mae"])
    return model


def test_other_versions_are_refused(monkeypatch):
    keras_compat.check_version()
    for version in ("3.11.3", "3.16.0", "4.0.0"):
        monkeypatch.setattr(keras, "__version__", version)
        with pytest.raises(ModelError, match=rf"Keras {version} is not supported: install 'keras"):
            keras_compat.check_version()


def test_supported_versions_are_those_that_are_installed():
    files = [
        "pyproject.toml",
        "trainer_skeleton/base/requirements.txt.j2",
        "trainer_skeleton/runtime/pyproject.toml",
    ]
    ranges = [re.findall(r"keras>=[\d.]+,<[\d.]+", (ROOT / name).read_text()) for name in files]
    assert {text for part in ranges for text in part} == {keras_compat.SUPPORTED}


def test_every_name_of_clear_session_calls_what_keeps_state(monkeypatch):
    for module in (tf.compat.v1, tf.compat.v2.compat.v1):
        monkeypatch.setattr(module, "reset_default_graph", module.reset_default_graph)
    calls = []
    keras_compat.keep_over_clear_session(lambda: calls.append("kept"))
    for clear in (keras.backend.clear_session, keras.utils.clear_session):
        clear(free_memory=False)
    tf.keras.backend.clear_session(free_memory=False)
    assert calls == ["kept"] * 3


def test_calls_create_variables_and_update_none():
    layer = layers.Dense(1, kernel_initializer="ones", kernel_regularizer="l2")
    metric = keras.metrics.MeanSquaredError()

    @tf.function
    def call(x):
        metric.update_state(tf.zeros((2, 1)), layer(x))
        assert len(layer.losses) == 1  # also of variables that have no value yet

    with keras_compat.variable_creation():
        call.get_concrete_function(tf.TensorSpec((2, 3), layer.compute_dtype))
    assert [tuple(v.shape) for v in layer.variables] == [(3, 1), (1,)]
    np.testing.assert_array_equal(layer.kernel, np.ones((3, 1)))
    assert float(metric.total) == 0


def test_the_function_of_a_metric():
    wrapped = keras.metrics.MeanMetricWrapper(max)
    assert keras_compat.metric_function(wrapped) is max
    assert keras_compat.metric_function(keras.metrics.Mean()) is keras.metrics.Mean.update_state


def test_one_loss_without_regularizers():
    x = layers.Input((3,))
    model = keras.Model(x, layers.Dense(1, kernel_regularizer="l2", name="a")(layers.Masking()(x)))
    model.compile("sgd", keras.losses.MeanSquaredError(), loss_weights=2.0)
    assert keras_compat.only_loss(model) is None  # not built
    assert not keras_compat.has_built_losses(model)
    inputs, y = tf.constant([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]), tf.zeros((2, 1))
    predicted = model(inputs)
    total = model.compute_loss(inputs, y, predicted)
    loss = keras_compat.compiled_loss(model, y, predicted, None)
    assert keras_compat.has_built_losses(model)
    assert float(loss + model.losses[0]) == pytest.approx(float(total))
    assert float(loss) == pytest.approx(2 * float(predicted[0, 0]) ** 2)
    assert keras_compat.only_loss(model).reduction == "sum_over_batch_size"
    assert keras_compat.mask_of(predicted).numpy().tolist() == [True, False]
    assert keras_compat.mask_of(y) is None
    several = keras.Model(x, [layers.Dense(1)(x), layers.Dense(1)(x)])
    several.compile("sgd", "mse")
    several.evaluate(np.ones((2, 3)), [np.ones((2, 1))] * 2, verbose=0)
    assert keras_compat.only_loss(several) is None


def test_own_losses_and_variables_leave_out_those_of_inner_layers():
    class Outer(layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = layers.BatchNormalization()
            self.count = self.add_weight(shape=(), trainable=False, name="count")
            self.metric = keras.metrics.Mean()

        def call(self, x):
            self.add_loss(tf.reduce_sum(x))
            return self.inner(x)

    outer = Outer()
    outer(tf.ones((2, 3)))
    assert [float(loss) for loss in keras_compat.own_losses(outer)] == [6.0]
    assert keras_compat.own_losses(outer.inner) == []
    assert [v.name for v in keras_compat.own_non_trainable_variables(outer)] == ["count"]
    statistics = keras_compat.own_non_trainable_variables(outer.inner)
    assert [v.name for v in statistics] == ["moving_mean", "moving_variance"]


def test_private_state_of_callbacks(tmp_path):
    known = keras.callbacks
    made = [known.ModelCheckpoint(tmp_path / "a.keras"), known.TensorBoard(tmp_path)]
    for callback in made:
        names = keras_compat.CALLBACK_STATE[type(callback)]
        assert [name for name in names if not hasattr(callback, name)] == []


def test_tensorboard_that_profiles_batches(tmp_path):
    board = keras.callbacks.TensorBoard
    assert keras_compat.traces_batches(board(tmp_path, profile_batch=2))
    assert not keras_compat.traces_batches(board(tmp_path, profile_batch=0))


def test_a_list_of_attributes_is_made_without_variables(monkeypatch):
    monkeypatch.setattr(saving_lib, "get_attr_skipset", saving_lib.get_attr_skipset)
    fit_calls.save_without_collectives()

    def refuse(*_, **__):
        raise AssertionError

    with tf.variable_creator_scope(refuse):
        assert "learning_rate" in saving_lib.get_attr_skipset("Optimizer")


def test_an_optimizer_is_copied_with_a_schedule_that_keras_cannot_serialize():
    class Halved(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return 0.5**step

    optimizer = keras.optimizers.AdamW(Halved(), weight_decay=0.1)
    copy = keras.optimizers.AdamW.from_config(keras_optimizers.optimizer_config(optimizer))
    for each in (copy, optimizer):
        each.build([keras.Variable([1.0])])
        each.iterations.assign(3)
        assert float(each.learning_rate) == 0.125
    constant = keras_optimizers.optimizer_config(keras.optimizers.SGD(0.25))
    assert constant["learning_rate"] == 0.25


def test_variables_without_weight_decay_are_known():
    bias, kernel = keras.Variable([1.0], name="bias"), keras.Variable([1.0], name="kernel")
    optimizer = keras.optimizers.AdamW()
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    assert [keras_optimizers.decays(optimizer, each) for each in (bias, kernel)] == [False, True]


def updated_by_adamw(*, is_scaled, is_compiled):
    """Return weights after some updates, and whether XLA compiles a part of one."""
    weights = keras.Variable([[1.0], [2.0]], name="kernel")
    adamw = keras.optimizers.AdamW(0.1, weight_decay=0.1, clipnorm=0.5)
    adamw.build([weights])
    optimizer = keras.optimizers.LossScaleOptimizer(adamw, 4.0) if is_scaled else adamw
    optimizer.build([weights])
    keras_optimizers.compile_updates(optimizer, lambda: is_compiled)
    apply = tf.function(lambda gradient: optimizer.apply([gradient], [weights]))
    rows = tf.IndexedSlices(tf.constant([[3.0]]), tf.constant([1]), tf.constant([2, 1]))
    for gradient in (tf.constant([[4.0], [1.0]]), tf.constant([[2.0], [8.0]]), rows):
        apply(gradient)
    graph = apply.get_concrete_function(tf.zeros([2, 1])).graph.as_graph_def()
    return weights.numpy(), any(f.attr["_XlaMustCompile"].b for f in graph.library.function)


@pytest.mark.parametrize("is_scaled", [False, True])
def test_updates_that_xla_compiles_are_the_same(is_scaled):
    """With clipping and weight decay; rows of sparse gradients are applied without XLA."""
    plain, is_plain_compiled = updated_by_adamw(is_scaled=is_scaled, is_compiled=False)
    compiled, is_compiled = updated_by_adamw(is_scaled=is_scaled, is_compiled=True)
    assert (is_plain_compiled, is_compiled) == (False, True)
    np.testing.assert_allclose(plain, compiled, rtol=1e-6)
    assert not np.allclose(plain, [[1.0], [2.0]])


def test_results_have_the_order_of_keras():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae", "accuracy"])
    x = np.ones((4, 2))
    for return_dict in (True, False):
        expected = model.evaluate(x, x[:, :1], verbose=0, return_dict=return_dict)
        results = fit_calls.results_of(model, model.get_metrics_result(), return_dict=return_dict)
        assert list(results) == list(expected)
