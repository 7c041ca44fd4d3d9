"""`Model.fit` of Keras, replaced by a run of the trainer in this process."""

from __future__ import annotations

import tempfile
from types import SimpleNamespace
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.trainers.data_adapters import array_slicing

from distlaunch_trainer import Arrays, Run, options, user_model
from distlaunch_trainer.errors import TrainerError

# In these tests a model is a layer with Keras's trainer, which no user can make.
user_model.keras = SimpleNamespace(**{**vars(keras), "Model": (keras.Model, TensorFlowTrainer)})


class NotMappedError(Exception):
    """An argument of `fit` that the trainer has no option for."""


def replace_fit() -> None:
    """Have `fit` of all models train by the trainer."""
    TensorFlowTrainer.fit = fit


def fit(  # noqa: PLR0917 - as Keras has it
    self: Any,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    epochs: int = 1,
    verbose: Any = "auto",  # the trainer shows no progress bar
    callbacks: Any = None,
    validation_split: float = 0.0,
    validation_data: Any = None,
    shuffle: bool = True,
    class_weight: Any = None,
    sample_weight: Any = None,
    initial_epoch: int = 0,
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
    validation_batch_size: int | None = None,
    validation_freq: int = 1,
) -> keras.callbacks.History:
    """Train in one process, in a job folder of its own; return the history as `fit` does."""
    self._assert_compile_called("fit")
    _check_mapped(
        initial_epoch=initial_epoch,
        validation_steps=validation_steps is not None,
        validation_batch_size=validation_batch_size not in {None, batch_size},
        validation_freq=validation_freq != 1,
    )
    if validation_split and validation_data is None:
        (x, y, sample_weight), validation_data = array_slicing.train_validation_split(
            (x, y, sample_weight), validation_split=validation_split
        )
    training = _source(x, y, sample_weight, class_weight)
    validation = None
    if isinstance(validation_data, tuple):
        validation = _source(*validation_data)
    elif validation_data is not None:
        validation = _source(validation_data)
    arguments = [f"--epochs={epochs}", f"--shuffle={10_000 if shuffle else 0}"]
    if tf.config.list_logical_devices("CPU")[1:] == []:
        arguments.append("--shards=1")  # the order of `fit`
    if keras.config.floatx() == "float64":
        arguments.append("--precision=float64")
    if isinstance(training, Arrays):
        arguments.append(f"--global-batch-size={batch_size or 32}")
    if steps_per_epoch is not None:
        arguments.append(f"--steps-per-epoch={steps_per_epoch}")
    callbacks = getattr(callbacks, "callbacks", callbacks)
    if isinstance(callbacks, keras.callbacks.Callback):
        callbacks = [callbacks]
    _train(self, training, validation, list(callbacks or []), arguments)
    return self.history


def _train(
    model: Any, training: Any, validation: Any, callbacks: list[Any], arguments: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = options.parser().parse_args([*arguments, f"--job-dir={folder}"])
        try:
            with Run(settings) as training_run:
                training_run.load_data(lambda: training, lambda: validation)
                with training_run.strategy.scope():
                    model = training_run.build_model(lambda: model)
                training_run.fit(model, callbacks)
        except TrainerError as error:
            # What the user's code, Keras or TensorFlow raised, as `fit` would let it pass.
            raise (error.__cause__ or error) from None


def _source(x: Any, y: Any = None, sample_weight: Any = None, class_weight: Any = None) -> Any:
    """Return data as `training()` would: arrays, or what `fit` takes besides."""
    arrays = (tf.Tensor, tf.RaggedTensor, tf.SparseTensor, tf.Variable, keras.Variable)
    parts = [part for part in tf.nest.flatten(x) if part is not None]
    if parts and all(hasattr(part, "__array__") or isinstance(part, arrays) for part in parts):
        return Arrays(x, y, sample_weight, class_weight)
    if class_weight:
        raise NotMappedError("class_weight of what is no array")
    return x


def _check_mapped(**arguments: Any) -> None:
    if names := [name for name, value in arguments.items() if value]:
        raise NotMappedError(", ".join(names))
