"""Weights that are NaN before the training are an error, also where the loss is finite."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.model.initial_weights import check_weights


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_layer_that_was_adapted_to_missing_numbers_is_named_with_the_cause(number):
    scale = layers.Normalization(axis=None, name="scale")
    with np.errstate(invalid="ignore"):
        scale.adapt(np.array([[1.0], [number]]))
    model = keras.Sequential([keras.Sequential([scale]), layers.Dense(2)])
    cause = r"scale/mean is NaN or infinite before .*: its layer's adapt\(\) was given NaN or inf"
    with pytest.raises(ModelError, match=cause):
        check_weights(model)


def test_other_weights_are_named_and_may_be_infinite_if_they_are_not_trained():
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        norm = layers.BatchNormalization(name="norm")
        model = keras.Sequential([layers.Input((1,)), norm])
        norm.moving_mean.assign([-np.inf])
        check_weights(model)
        for weight, number in ((norm.moving_mean, np.nan), (norm.beta, np.inf)):
            weight.assign([number])
            with pytest.raises(ModelError, match=f"norm/{weight.name} is NaN or .* initializer"):
                check_weights(model)
            weight.assign([0.0])
