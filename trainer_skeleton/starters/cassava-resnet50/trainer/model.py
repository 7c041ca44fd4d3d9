"""The model: ResNet50 behind random flips and rotations."""

import os

import keras

from distlaunch_trainer import downloading

from .data import IMAGE_SIZE

# "imagenet" starts from pretrained weights, which are downloaded once into ~/.keras/models; a path
# from those of a file (.h5).
WEIGHTS = os.environ.get("WEIGHTS") or None
URL = "https://storage.googleapis.com/tensorflow/keras-applications/resnet"
FILE = "resnet50_weights_tf_dim_ordering_tf_kernels_notop.h5"


def create_model() -> keras.Model:
    """Return a compiled model; it is trained as compiled, on one worker or on many."""
    resnet = keras.applications.ResNet50(
        include_top=False, weights=weights_file(), input_shape=(IMAGE_SIZE, IMAGE_SIZE, 3)
    )
    model = keras.Sequential(
        [
            keras.layers.Input((IMAGE_SIZE, IMAGE_SIZE, 3)),
            keras.layers.RandomFlip("horizontal"),
            keras.layers.RandomRotation(0.1),
            resnet,
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(5),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(1e-4),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def weights_file() -> str | None:
    """Return the path of the pretrained weights; None trains from scratch."""
    if WEIGHTS != "imagenet":
        return WEIGHTS
    with downloading(
        "the weights of ResNet50", "set WEIGHTS to a copy of the file, or leave it out"
    ):
        return keras.utils.get_file(FILE, f"{URL}/{FILE}", cache_subdir="models")


def callbacks() -> list[keras.callbacks.Callback]:
    """Return Keras callbacks; they run on every worker, with the same logs on all."""
    return []
