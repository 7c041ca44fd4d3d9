"""Resumes a run from its checkpoint of every step, with callbacks, and compares the results.

    python -m resumed_runs CASE... STEP...

Prints a JSON object: for each case and step what differs from the run that was not interrupted.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer import Arrays, Run, options
from distlaunch_trainer.errors import TrainingStopped
from distlaunch_trainer.saving import checkpoints

if TYPE_CHECKING:
    from collections.abc import Callable

kc = keras.callbacks
ROWS, BATCH, STEPS, EPOCHS = 10, 4, 3, 2
FIRST = "step-00000000"
LAST = f"step-{STEPS * EPOCHS:08d}"


class Rates(kc.Callback):
    """Changes the learning rate wherever a callback may, starting from what it reads."""

    def rate(self, factor: float) -> float:
        optimizer = self.model.optimizer
        optimizer.learning_rate = float(optimizer.learning_rate) * factor
        return float(optimizer.learning_rate)

    def on_train_begin(self, logs: Any = None) -> None:
        self.initial = self.rate(1.25)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.of_epoch = self.rate(0.75) + 0.1 * self.initial

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.model.optimizer.learning_rate = self.of_epoch * (1 + batch) / 4

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.rate(0.9)


class Counts(kc.Callback):
    """Counts in all hooks, scales a weight by its counts, and logs them."""

    epochs = batches = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epochs += 1
        bias = self.model.layers[-1].bias
        bias.assign(bias + self.epochs / 8)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.batches += 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs["batches"] = float(self.batches + self.epochs)

    def get_state(self) -> Any:
        return [self.epochs, self.batches]

    def set_state(self, state: Any) -> None:
        self.epochs, self.batches = state


class Stops(kc.Callback):
    """Sends SIGTERM before the first step, once; its state has an array."""

    is_due = False

    def __init__(self) -> None:
        super().__init__()
        self.seen = np.zeros(3)

    def on_train_begin(self, logs: Any = None) -> None:
        if Stops.is_due:
            Stops.is_due = False
            os.kill(os.getpid(), signal.SIGTERM)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seen = self.seen + 1
        logs["seen"] = float(self.seen[0])

    def get_state(self) -> Any:
        return self.seen

    def set_state(self, state: Any) -> None:
        self.seen = state


CASES: dict[str, Callable[[], list[kc.Callback]]] = {
    "scheduler": lambda: [kc.LearningRateScheduler(lambda _, rate: rate * 0.5)],
    "plateau": lambda: [kc.ReduceLROnPlateau("loss", factor=0.5, patience=0, min_delta=10.0)],
    "stopping": lambda: [
        kc.EarlyStopping("loss", patience=0, min_delta=10.0, restore_best_weights=True)
    ],
    "files": lambda: [
        kc.ModelCheckpoint("saved.keras", save_freq=2),
        kc.TensorBoard("logs", update_freq=1),
        kc.BackupAndRestore("backup"),
    ],
    "nan": lambda: [kc.TerminateOnNaN()],
    "swap": lambda: [kc.SwapEMAWeights()],
    "function": lambda: [
        kc.LambdaCallback(on_epoch_begin=lambda epoch, logs: halve(), on_epoch_end=print)
    ],
    "rates": lambda: [Rates()],
    "counts": lambda: [Counts()],
    "stops": lambda: [Stops()],
}
CASES["all"] = lambda: [
    callback for name in CASES if name not in {"all", "stopping"} for callback in CASES[name]()
]


def halve() -> None:
    optimizer = halve.model.optimizer
    optimizer.learning_rate = float(optimizer.learning_rate) / 2


class Annealed(keras.layers.Layer):
    """Adds a loss whose weight grows with the steps, and draws of a generator."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = tf.Variable(0.0, trainable=False)
        self.generator = tf.random.Generator.from_seed(1)

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.steps.assign_add(0.1)
        self.add_loss(tf.sin(self.steps + self.generator.uniform([])) * tf.reduce_mean(x**2))
        return x


class Loss(keras.losses.Loss):
    """Counts the steps in a variable of its own and in one of its class."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = [tf.Variable(1.0, trainable=False)]
        Loss.latest = tf.Variable(1.0, trainable=False)

    def call(self, y: Any, predicted: Any) -> Any:
        counts, latest = self.counts[0].assign_add(0.25), Loss.latest.assign_add(0.5)
        return tf.square(y - predicted) * tf.cos(counts) * tf.sin(latest)


def create_model() -> keras.Model:
    layers = keras.layers
    model = keras.Sequential([layers.Input((2,)), layers.Dense(3, "tanh"), Annealed()])
    model.add(layers.Dense(1))
    optimizer = keras.optimizers.Adam(0.1, use_ema=True, ema_momentum=0.5)
    model.compile(optimizer, Loss(), metrics=["mae"])
    halve.model = model
    return model


def data(rows: int) -> Arrays:
    random = np.random.default_rng(rows)
    x = random.normal(size=(rows, 2))
    return Arrays(x, (x**2).sum(1, keepdims=True))


def train(folder: Path, case: str) -> dict[str, Any]:
    """Train or resume in a folder; return what the run leaves."""
    keras.backend.clear_session()
    arguments = f"--job-dir={folder} --epochs={EPOCHS} --global-batch-size={BATCH} --shards=1"
    settings = options.parser().parse_args([*arguments.split(), "--checkpoint-every=1"])
    with Run(settings) as run:
        run.load_data(lambda: data(ROWS), lambda: data(5))
        with run.strategy.scope():
            model = run.build_model(create_model)
        records = run.fit(model, [*CASES[case](), kc.CSVLogger(str(folder / "log.csv"))])
    speeds = [record.pop("examples_per_second") for record in records]
    assert all(speeds)
    for record in records:
        record.pop("timing")
    variables = [*model.variables, *model.optimizer.variables, model.layers[1].steps]
    return {
        "records": records,
        "history": model.history.history,
        "csv": (folder / "log.csv").read_text(),
        "weights": [np.asarray(variable).tolist() for variable in variables],
        "loss": [float(variable) for variable in (*model.loss.counts, Loss.latest)],
    }


def differences(case: str, wanted: list[int]) -> dict[str, list[str]]:
    """Return by step which results of a run that resumes there are others."""
    calm = Path(case)
    expected = train(calm, case)
    assert expected["records"][0]["examples"] == ROWS
    found = {}
    for step in (f"step-{number:08d}" for number in wanted):
        resumed = Path(f"{case}-{step}")
        if step == FIRST:
            Stops.is_due = True
            with suppress(TrainingStopped):
                train(resumed, case)
            assert (resumed / "checkpoints" / step).exists()
        else:
            shutil.copytree(calm / "checkpoints" / step, resumed / "checkpoints" / step)
            shutil.copy(calm / "log.csv", resumed)
        results = train(resumed, case)
        if step == LAST:  # nothing is left to train, and no step is traced that shows the loss's
            results["loss"] = expected["loss"]
        found[step] = [name for name in results if results[name] != expected[name]]
    return found


def main() -> None:
    checkpoints.MAX_TO_KEEP = 100
    keras.utils.set_random_seed(0)
    tf.config.experimental.enable_op_determinism()
    steps = [int(text) for text in sys.argv[1:] if text.isdecimal()]
    cases = [text for text in sys.argv[1:] if not text.isdecimal()]
    print(json.dumps({case: differences(case, steps) for case in cases}))


if __name__ == "__main__":
    main()
