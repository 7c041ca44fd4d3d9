"""The model: MobileNetV2, of which the last layers are trained."""

import os

import keras

from distlaunch_trainer import downloading

from .data import IMAGE_SIZE

# "imagenet" starts from pretrained weights, which are downloaded once into ~/.keras/models; a path
# from those of a file (.h5).
WEIGHTS = os.environ.get("WEIGHTS") or None
URL = "https://storage.googleapis.com/tensorflow/keras-applications/mobilenet_v2"
FILE = "mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_160_no_top.h5"

# Of pretrained weights, those of the first layers are kept.
FROZEN_LAYERS = 100


def create_model() -> keras.Model:
    """Return a compiled model; it is trained as compiled, on one worker or on many."""
    mobilenet = keras.applications.MobileNetV2(
        include_top=False, weights=weights_file(), input_shape=(IMAGE_SIZE, IMAGE_SIZE, 3)
    )
    for layer in mobilenet.layers[: FROZEN_LAYERS if WEIGHTS else 0]:
        layer.trainable = False
    model = keras.Sequential(
        [
            keras.layers.Input((IMAGE_SIZE, IMAGE_SIZE, 3)),
            keras.layers.RandomFlip("horizontal"),
            keras.layers.RandomRotation(0.2),
            mobilenet,
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(1, dtype="float32"),  # the loss is computed in full precision
        ]
    )
    model.compile(
        # The rate of one replica; --scale-learning-rate multiplies it by their number.
        optimizer=keras.optimizers.Adam(1e-4),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[keras.metrics.BinaryAccuracy(threshold=0.0, name="accuracy")],
    )
    return model


def weights_file() -> str | None:
    """Return the path of the pretrained weights; None trains from scratch."""
    if WEIGHTS != "imagenet":
        return WEIGHTS
    with downloading(
        "the weights of MobileNetV2", "set WEIGHTS to a copy of the file, or leave it out"
    ):
        return keras.utils.get_file(FILE, f"{URL}/{FILE}", cache_subdir="models")


def callbacks() -> list[keras.callbacks.Callback]:
    """Return Keras callbacks; they run on every worker, with the same logs on all."""
    return []
