"""The model: the convolutional network of TensorFlow's tutorials, and a learning-rate schedule."""

import keras


def create_model() -> keras.Model:
    """Return a compiled model; it is trained as compiled, on one worker or on many."""
    model = keras.Sequential(
        [
            keras.layers.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def learning_rate(epoch: int) -> float:
    """Return the rate of an epoch; the first one is 0."""
    if epoch < 3:
        return 1e-3
    return 1e-4 if epoch < 7 else 1e-5


class PrintLearningRate(keras.callbacks.Callback):
    """Prints the rate after each epoch; the rate is the same on all workers, and each prints it."""

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:  # noqa: ARG002
        """Print the rate of the epoch that ends."""
        rate = float(self.model.optimizer.learning_rate)
        print(f"learning rate of epoch {epoch + 1}: {rate:g}", flush=True)


def callbacks() -> list[keras.callbacks.Callback]:
    """Return Keras callbacks; they run on every worker, with the same logs on all."""
    return [keras.callbacks.LearningRateScheduler(learning_rate), PrintLearningRate()]
