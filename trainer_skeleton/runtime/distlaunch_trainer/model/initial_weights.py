"""The weights of a model before its training: the loss may not show NaN, as ``relu`` hides it."""

from __future__ import annotations

import keras
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.errors import ModelError


def check_weights(model: keras.Model) -> None:
    """Raise a ModelError for a weight that is NaN, or infinite where it is trained or adapted."""
    layers = keras_compat.all_layers(model)
    adapted = [layer for layer in layers if isinstance(layer, keras.layers.Normalization)]
    of_adapted = {id(weight) for layer in adapted for weight in layer.weights}
    for weight in filter(lambda each: tf.as_dtype(each.dtype).is_floating, model.weights):
        is_adapted = id(weight) in of_adapted
        is_limited = weight.trainable or is_adapted  # a layer's least value so far begins at inf
        if tf.reduce_any(~tf.math.is_finite(weight) if is_limited else tf.math.is_nan(weight)):
            reason = (
                "its layer's adapt() was given NaN or infinite numbers, such as missing cells of a "
                "CSV file: fill them in, or leave their rows out"
            )
            raise ModelError(
                f"the weight {weight.path} is NaN or infinite before the training: "
                f"{reason if is_adapted else 'see its initializer, or where it was loaded from'}"
            )
