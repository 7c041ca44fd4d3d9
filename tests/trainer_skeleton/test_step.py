"""What the steps refuse to train, as they would not train it as `fit` does."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf

from trainer.distributed import step
from trainer.distributed.errors import ModelError
from trainer.distributed.loop import _check_has_rows_for_statistics, _check_leaves_weights
from trainer.distributed.plan import Plan


def model(optimizer, *layers, loss="mse"):
    made = keras.Sequential([keras.layers.Input((3,)), *layers, keras.layers.Dense(1)])
    made.compile(optimizer, loss)
    return made


@pytest.mark.parametrize("wrap", [lambda inner: inner, keras.optimizers.LossScaleOptimizer])
def test_gradient_accumulation_on_several_replicas(wrap):
    accumulating = wrap(keras.optimizers.SGD(gradient_accumulation_steps=2))
    with pytest.raises(
        ModelError, match="gradient_accumulation_steps are not supported on several"
    ):
        step._check_can_train(model(accumulating), replicas=2)
    step._check_can_train(model(accumulating), replicas=1)


def test_averages_that_replace_the_weights_on_the_way():
    averaging = keras.optimizers.SGD(use_ema=True, ema_overwrite_frequency=3)
    with pytest.raises(ModelError, match="ema_overwrite_frequency is not supported on several"):
        step._check_can_train(model(averaging), replicas=2)
    step._check_can_train(model(averaging), replicas=1)


def test_losses_that_are_reduced_in_other_ways():
    unreduced = model("sgd", loss=keras.losses.MeanSquaredError(reduction="none"))
    with pytest.raises(ModelError, match="reductions none are not supported on several replicas"):
        step._reduction(unreduced, replicas=2)


def test_synchronized_layer_without_a_row_on_each_replica():
    synchronized = model("sgd", keras.layers.BatchNormalization(synchronized=True, name="norm"))
    with pytest.raises(ModelError) as refused:
        _check_has_rows_for_statistics(synchronized, Plan(121, 12, 2))
    assert str(refused.value) == (
        "the layer norm is synchronized and needs a row on each of 2 replicas, but the last step "
        "of an epoch has 1: choose another --global-batch-size"
    )
    _check_has_rows_for_statistics(synchronized, Plan(122, 12, 2))
    _check_has_rows_for_statistics(model("sgd"), Plan(121, 12, 2))
    synchronized.get_layer("norm").trainable = False
    _check_has_rows_for_statistics(synchronized, Plan(121, 12, 2))


def test_callback_that_leaves_averages_where_weights_are_saved():
    swapping = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    with pytest.raises(ModelError, match="leave swap_on_epoch out"):
        _check_leaves_weights([swapping])
    _check_leaves_weights([keras.callbacks.SwapEMAWeights()])


def test_frozen_weights_are_no_statistics():
    """They may be many, and are neither copied nor sent."""
    frozen = keras.Sequential([keras.layers.Dense(3), keras.layers.BatchNormalization()])
    frozen.trainable = False
    trained = keras.layers.BatchNormalization()
    made = model("sgd", frozen, trained)
    expected = [trained.moving_mean, trained.moving_variance]
    assert [v.path for v in step._statistics(made)] == [v.path for v in expected]
    assert [v.path for v in step._averages(made)] == [v.path for v in expected]


def test_sums_of_several_types():
    values = [tf.constant(1.0), tf.constant(2, tf.int64), tf.constant(3.0, tf.float64)]
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    sums = strategy.run(tf.function(lambda: step._sum_over_replicas(values)))
    assert [each.dtype for each in sums] == [value.dtype for value in values]
    assert [float(each) for each in sums] == [1.0, 2.0, 3.0]
