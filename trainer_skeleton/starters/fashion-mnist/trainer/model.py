"""The model: two convolutions and dropout, with callbacks that look at the validation."""

import keras


def create_model() -> keras.Model:
    """Return a compiled model; it is trained as compiled, on one worker or on many."""
    model = keras.Sequential(
        [
            keras.layers.Input((28, 28, 1)),
            keras.layers.Conv2D(64, 2, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Dropout(0.3),
            keras.layers.Conv2D(32, 2, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Dropout(0.3),
            keras.layers.Flatten(),
            keras.layers.Dense(256, activation="relu"),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


class PrintLearningRate(keras.callbacks.Callback):
    """Prints the rate after each epoch; the rate is the same on all workers, and each prints it."""

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:  # noqa: ARG002
        """Print the rate of the next epoch."""
        rate = float(self.model.optimizer.learning_rate)
        print(f"learning rate after epoch {epoch + 1}: {rate:g}", flush=True)


def callbacks() -> list[keras.callbacks.Callback]:
    """Return Keras callbacks; they run on every worker, with the same logs on all."""
    return [
        keras.callbacks.ReduceLROnPlateau(factor=0.2, patience=2, min_lr=8e-6),
        keras.callbacks.EarlyStopping(patience=5, restore_best_weights=True),
        PrintLearningRate(),
    ]
