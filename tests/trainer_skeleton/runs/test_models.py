"""What is saved is what was trained and validated."""

import subprocess
import sys

import keras
import numpy as np
import pytest

from .conftest import REGRESSION_DATA, REGRESSION_MODEL

pytestmark = pytest.mark.slow

HEAD = """
import keras

layers = keras.layers
"""

# The loss is summed over the rows; the saved weights are averages over the steps.
SUMMED_AND_AVERAGED = """
def create_model():
    model = keras.Sequential([
        layers.Input((6,)),
        layers.Dense(8, activation="tanh", kernel_regularizer="l2", activity_regularizer="l2"),
        layers.Dense(1),
    ])
    model.compile(
        keras.optimizers.SGD(1e-3, use_ema=True, ema_momentum=0.9),
        keras.losses.MeanSquaredError(reduction="sum"),
        weighted_metrics=["mae"],
    )
    return model
"""

SETTINGS = ("--epochs=2", "--precision=float64", "--learning-rate=0.01")


def test_averaged_weights_are_those_of_the_saved_model(project):
    project.write("trainer/model.py", HEAD + SUMMED_AND_AVERAGED)
    project.write("trainer/data.py", REGRESSION_DATA)
    result = project.trainer(*SETTINGS, "--global-batch-size=12", "--job-dir=job")
    assert result.code == 0, result.text
    model = keras.models.load_model(project.folder / "job/model/model.keras")
    averages = [v for v in model.optimizer.variables if "average" in v.path]
    assert len(averages) == len(model.trainable_weights)
    for weight, average in zip(model.trainable_weights, averages, strict=True):
        np.testing.assert_array_equal(weight, average)


BATCH_NORMALISATION = """
def create_model():
    model = keras.Sequential(
        [layers.Input((6,)), layers.Dense(8), layers.BatchNormalization(), layers.Dense(1)]
    )
    model.compile(keras.optimizers.Adam(1e-2), "mse")
    return model


class Rate(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print("RATE", float(self.model.optimizer.learning_rate))


def callbacks():
    hook = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: print("BATCH"))
    return [Rate(), hook, keras.callbacks.BackupAndRestore("backup")]
"""


def test_all_workers_end_with_the_model_that_was_validated(project):
    """Also: callbacks read the learning rate, and hooks of LambdaCallback are called each step."""
    project.write("trainer/model.py", HEAD + BATCH_NORMALISATION)
    project.write("trainer/data.py", REGRESSION_DATA)
    result = project.local(
        "job", "--workers", "2", "--", "--epochs=2", "--global-batch-size=12", "--precision=float64"
    )
    assert result.code == 0, result.text
    assert result.out.count("RATE 0.01\n") == 2 * 2
    assert result.out.count("BATCH") == 2 * 2 * 11
    assert "BackupAndRestore is left out" in result.out
    keras.config.set_floatx("float64")
    try:
        model = keras.models.load_model(project.folder / "job/model/model.keras")
        x, y, weights = validation_data()
        loss = model.evaluate(x, y, sample_weight=weights, batch_size=12, verbose=0)
    finally:
        keras.config.set_floatx("float32")
    assert loss == pytest.approx(project.summary("job")["epochs"][-1]["logs"]["val_loss"], abs=1e-9)


def test_the_projects_own_test_takes_arrays_without_validation(project):
    project.write("trainer/model.py", REGRESSION_MODEL)
    project.write("trainer/data.py", REGRESSION_DATA.replace("_arrays(37, 2)", "None"))
    command = [sys.executable, "-m", "pytest", "-q", "tests"]
    done = subprocess.run(command, cwd=project.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "2 passed, 1 skipped" in done.stdout


def validation_data():
    random = np.random.default_rng(2)
    x = random.normal(size=(37, 6))
    return x, np.sin(x.sum(axis=1, keepdims=True)), 0.5 + random.random(37)


UNSAVABLE = """
class Unsavable(layers.Layer):
    def call(self, x):
        return 2 * x

    def get_config(self):
        raise NotImplementedError


def create_model():
    model = keras.Sequential([layers.Input((6,)), Unsavable(), layers.Dense(1)])
    model.compile("sgd", "mse")
    return model
"""


def test_model_that_keras_cannot_serialize_is_kept_as_weights_and_savedmodel(project):
    project.write("trainer/model.py", HEAD + UNSAVABLE)
    project.write("trainer/data.py", REGRESSION_DATA)
    result = project.trainer("--epochs=1", "--job-dir=job")
    assert result.code == 0, result.text
    assert "Keras cannot serialize the class Unsavable: add get_config()" in result.err
    assert result.err.count("trainer: warning: model.keras w") == 2
    files = ["model.weights.h5", "saved_model.pb"]
    assert project.summary("job")["model_files"] == files
    assert all((project.folder / "job/model" / name).exists() for name in files)
