"""Which models are refused, and which numbers per step are weighted by rows."""

from __future__ import annotations

import keras
import pytest

from distlaunch_trainer import custom_steps
from distlaunch_trainer.errors import ModelError

layers = keras.layers


def test_stateful_layers_are_refused_by_name_on_several_replicas():
    x = layers.Input(batch_shape=(4, 5, 3))
    inner = layers.LSTM(2, stateful=True, return_sequences=True, name="memory")
    outer = layers.Bidirectional(layers.GRU(2, stateful=True, name="both"))
    model = keras.Model(x, outer(inner(x)))
    with pytest.raises(
        ModelError, match=r"the layers memory, .*both.* are stateful, and 2 replicas"
    ):
        custom_steps.check_can_train(model, 2)
    custom_steps.check_can_train(model, 1)
    custom_steps.check_can_train(keras.Model(x, layers.LSTM(2)(x)), 2)


def test_a_loop_of_the_model_is_refused():
    class Own(keras.Sequential):
        def make_test_function(self, force=False):
            raise RuntimeError

    with pytest.raises(ModelError, match=r"Own.make_test_function\(\) .* would not be called"):
        custom_steps.check_can_train(Own(), 1)


def test_metrics_that_take_weights():
    known = keras.metrics
    assert [custom_steps.weights_scalars(m) for m in (known.Mean(), known.Sum())] == [True, True]
    assert not custom_steps.weights_scalars(known.MeanSquaredError())
