"""The models that benchmarks train, by the variable MODEL; each takes 28 x 28 images.

`small` has 13,000 weights, and a step of 64 images takes some 5 ms on one core. `tutorial` is the
one of TensorFlow's tutorial on multi-worker training: 2.8 million weights, nearly all of them
between two layers, and 11 MB to exchange at each step of some 20 ms. A step of `wide` takes 50 ms
and more.
"""

import os

import keras

layers = keras.layers
LAYERS = {
    "tutorial": lambda: [
        layers.Conv2D(32, 3, activation="relu"),
        layers.Flatten(),
        layers.Dense(128, activation="relu"),
    ],
    "small": lambda: [
        layers.Conv2D(16, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(32, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
    ],
    "wide": lambda: [
        layers.Conv2D(48, 3, activation="relu"),
        layers.Conv2D(64, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
    ],
}


def create_model() -> keras.Model:
    """Return a compiled model."""
    middle = LAYERS[os.environ["MODEL"]]()
    ends = layers.Input((28, 28)), layers.Reshape((28, 28, 1))
    model = keras.Sequential([*ends, *middle, layers.Dense(10)])
    model.compile(
        optimizer=keras.optimizers.SGD(0.001),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model
