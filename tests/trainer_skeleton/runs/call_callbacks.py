"""Keras's callbacks under `fit` and under the trainer.

    python -m call_callbacks --folder FOLDER

Each writes the calls that it got, with their logs, to FOLDER; on data with a NaN to FOLDER-nan.
A task alone also runs `fit`.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
from pathlib import Path

import keras
import numpy as np
import zoo

from trainer.distributed import cluster, run
from trainer.distributed.input import Arrays
from trainer.distributed.plan import Plan
from trainer.distributed.settings import Settings, UserCode

run.connect = functools.cache(cluster.connect)
run.save_model = lambda model, folder, report: []  # takes as long as the training

EPOCHS = 7
HOOKS = [name for name in dir(keras.callbacks.Callback) if name.startswith("on_")]


def arrays(examples, bad):
    x, y, weights, _ = zoo.weighted(examples)
    if bad:
        x[40] = np.nan
    return x, y, weights


def in_turn(examples, bad):
    """Return the arrays in the order of the plan's positions."""
    plan = Plan(examples, zoo.BATCH)
    shards = [range(*plan.shard_bounds(shard)) for shard in range(plan.shards)]
    order = [shards[p % plan.shards][p // plan.shards] for p in range(examples)]
    return [array[order] for array in arrays(examples, bad)]


class Calls(keras.callbacks.Callback):
    """Takes every call down, and what a callback would look at."""

    def __init__(self, name):
        super().__init__()
        self.name = name
        self.calls = []

    def take_down(self, hook, number, logs):
        rate = float(self.model.optimizer.learning_rate)
        self.calls.append([self.name, hook, number, rate, dict(logs or {})])


class EndsEvaluation(keras.callbacks.Callback):
    """Ends the validation of the first epoch early."""

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_test_batch_end(self, batch, logs=None):
        if self.epoch == 0 and batch == 1:
            self.model.stop_evaluating = True


def _taking(hook):
    if "epoch" in hook or "batch" in hook:
        return lambda self, number, logs=None: self.take_down(hook, number, logs)
    return lambda self, logs=None: self.take_down(hook, None, logs)


for hook in HOOKS:
    setattr(Calls, hook, _taking(hook))


def callbacks(folder, bad):
    if bad:
        calls = Calls("calls")
        return calls, [calls, keras.callbacks.TerminateOnNaN()]
    known, first, last = keras.callbacks, Calls("first"), Calls("last")
    last.calls = first.calls

    def lines(epoch, logs):
        first.calls.append(["lambda", "on_epoch_end", epoch, 0.0, dict(logs)])

    return first, [
        first,
        EndsEvaluation(),
        known.LearningRateScheduler(lambda epoch, rate: rate * (0.9 if epoch < 3 else 1)),
        known.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, min_delta=0.03),
        known.EarlyStopping("val_loss", patience=2, min_delta=0.03, restore_best_weights=True),
        known.ModelCheckpoint(folder / "best.keras", "val_loss", save_best_only=True),
        known.CSVLogger(folder / "log.csv"),
        known.TensorBoard(folder / "board", histogram_freq=1),
        known.LambdaCallback(on_epoch_end=lines),
        last,
    ]


def write(folder, task, calls, model):
    (folder / f"calls.{task}.json").write_text(json.dumps(calls.calls))
    values = [np.asarray(v.value, float) for v in model.weights]
    np.savez(folder / f"weights.{task}.npz", *values)


def create_model():
    return zoo.mlp(keras.optimizers.Adam(0.05), metrics=["mae"])


def train(folder, bad):
    role = cluster.role_from(os.environ)
    calls, given = callbacks(folder, bad)
    user = UserCode(
        create_model=create_model,
        callbacks=lambda: given,
        training=lambda: Arrays(*arrays(zoo.EXAMPLES, bad)),
        validation=lambda: Arrays(*arrays(zoo.VALIDATION, bad=False)),
    )
    settings = Settings(
        job_dir=str(folder / "job"),
        epochs=EPOCHS,
        global_batch_size=zoo.BATCH,
        seed=zoo.SEED,
        shuffle=0,
        precision="float64",
    )
    run._run(settings, lambda: user)
    write(folder, role.name.replace(":", "-"), calls, calls.model)
    return role


def fit(folder, bad):
    folder.mkdir()
    keras.utils.set_random_seed(zoo.SEED)
    model = create_model()
    calls, given = callbacks(folder, bad)
    x, y, weights = in_turn(zoo.EXAMPLES, bad)
    model.fit(
        x,
        y,
        sample_weight=weights,
        batch_size=zoo.BATCH,
        shuffle=False,
        epochs=EPOCHS,
        verbose=0,
        callbacks=given,
        validation_data=in_turn(zoo.VALIDATION, bad=False),
        validation_batch_size=zoo.BATCH,
    )
    write(folder, "fit", calls, model)


def main(folder):
    for bad in (False, True):
        results = folder.with_name(f"{folder.name}-nan") if bad else folder
        results.mkdir(parents=True, exist_ok=True)
        role = train(results, bad)
        keras.backend.clear_session()
        if role.size == 1:
            fit(results / "fit", bad)
            keras.backend.clear_session()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path)
    options, _ = parser.parse_known_args()
    main(options.folder)
