"""A small model, in a run that is stopped after the step STOP_AT, if it is set."""

import os
import signal

import keras


def create_model() -> keras.Model:
    """Return a compiled model."""
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((64,)), layers.Dense(32, activation="relu"), layers.Dense(10)]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


class Stop(keras.callbacks.Callback):
    """Asks this process to stop, as a cloud does that takes its machine away."""

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:  # noqa: ARG002
        """Ask after the step."""
        if batch + 1 == int(os.environ["STOP_AT"]):
            os.kill(os.getpid(), signal.SIGTERM)


def callbacks() -> list[keras.callbacks.Callback]:
    """Return what stops the run, if it is to be stopped."""
    return [Stop()] if "STOP_AT" in os.environ else []
