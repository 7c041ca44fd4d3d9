"""Trains models of the zoo one after the other in one cluster, then one with Keras's callbacks.

    python -m train_zoo --folder FOLDER --models NAME... [--callbacks]

Each task writes the weights that it ends with and the calls that its callbacks got. A task alone
also lets `fit` train on the same batches.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import traceback
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
import zoo

from trainer.distributed import cluster, run, storage
from trainer.distributed.input import Arrays
from trainer.distributed.pipeline import Order, Pipeline
from trainer.distributed.plan import Plan
from trainer.distributed.settings import Settings, UserCode

run.connect = functools.cache(cluster.connect)
run.save_model = lambda model, folder, report: []  # takes as long as the training

CALLBACK_EPOCHS = 7


def train(user, job, epochs=zoo.EPOCHS, **settings):
    of_job = {"job_dir": str(job), "epochs": epochs, "global_batch_size": zoo.BATCH}
    run._run(Settings(**of_job, seed=zoo.SEED, debug=True, **settings), lambda: user)


def write_weights(path, model):
    values = [*model.weights, *model.optimizer.variables]
    np.savez(path, *[np.asarray(v.value, float) for v in values])


class KeepWeights(keras.callbacks.Callback):
    """Each task writes its own."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def on_train_end(self, logs=None):
        write_weights(self.path, self.model)


def train_case(name, folder, task):
    case = zoo.CASES[name]
    user = UserCode(
        create_model=case.create_model,
        callbacks=lambda: [KeepWeights(folder / f"{name}.{task}.npz")],
        training=lambda: Arrays(*case.data(zoo.EXAMPLES)),
        validation=lambda: Arrays(*case.data(zoo.VALIDATION)),
    )
    options = {"precision": case.precision, "sync_batch_norm": case.sync_batch_norm}
    train(user, folder / name, **options)


def fit_case(case):
    """Return the history of Keras's own loop on the very batches that one worker gets."""
    alone = cluster.Team(cluster.Role(), tf.distribute.get_strategy())
    batches = [
        Pipeline(Arrays(*case.data(plan.examples)).open(alone, ""), plan, order)
        .dataset(range(1))
        .map(lambda data, rows, total: data)
        for plan, order in (
            (Plan(zoo.EXAMPLES, zoo.BATCH), Order(zoo.SEED, 10_000)),
            (Plan(zoo.VALIDATION, zoo.BATCH), Order()),
        )
    ]
    keras.utils.set_random_seed(zoo.SEED)
    model = case.create_model()
    done = model.fit(
        batches[0],
        steps_per_epoch=-(-zoo.EXAMPLES // zoo.BATCH),
        epochs=zoo.EPOCHS,
        validation_data=batches[1],
        validation_steps=-(-zoo.VALIDATION // zoo.BATCH),
        verbose=0,
    )
    return [{k: v[n] for k, v in done.history.items()} for n in range(zoo.EPOCHS)]


class Calls(keras.callbacks.Callback):
    """Records every call, and what a callback would look at."""

    def __init__(self, name):
        super().__init__()
        self.name = name
        self.calls = []

    def record(self, hook, number, logs):
        rate = float(self.model.optimizer.learning_rate)
        self.calls.append([self.name, hook, number, rate, dict(logs or {})])


def _recording(hook):
    if "epoch" in hook or "batch" in hook:
        return lambda self, number, logs=None: self.record(hook, number, logs)
    return lambda self, logs=None: self.record(hook, None, logs)


for name in dir(keras.callbacks.Callback):
    if name.startswith("on_"):
        setattr(Calls, name, _recording(name))


class EndsEvaluation(keras.callbacks.Callback):
    """Ends the validation of the first epoch early."""

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_test_batch_end(self, batch, logs=None):
        if self.epoch == 0 and batch == 1:
            self.model.stop_evaluating = True


def callbacks(folder, bad):
    known, first, last = keras.callbacks, Calls("first"), Calls("last")
    last.calls = first.calls
    if bad:
        return first, [first, known.TerminateOnNaN()]

    def add_epoch(epoch, logs):
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
        known.LambdaCallback(on_epoch_end=add_epoch),
        last,
    ]


def arrays(examples, bad=False):
    """Return x, y and the weights; bad values are in x."""
    x, y, weights, _ = zoo.weighted(examples)
    if bad:
        x[40] = np.nan
    return x, y, weights


def in_turn(examples, bad=False):
    """Return the arrays in the order of the plan's positions."""
    plan = Plan(examples, zoo.BATCH)
    shards = [range(*plan.shard_bounds(shard)) for shard in range(plan.shards)]
    order = [shards[p % plan.shards][p // plan.shards] for p in range(examples)]
    return [array[order] for array in arrays(examples, bad)]


def create_model():
    return zoo.mlp(keras.optimizers.Adam(0.05), metrics=["mae"])


def train_with_callbacks(folder, bad, task):
    calls, given = callbacks(folder, bad)
    user = UserCode(
        create_model=create_model,
        callbacks=lambda: given,
        training=lambda: Arrays(*arrays(zoo.EXAMPLES, bad)),
        validation=lambda: Arrays(*arrays(zoo.VALIDATION)),
    )
    train(user, folder / "job", CALLBACK_EPOCHS, shuffle=0, precision="float64")
    write_calls(folder, task, calls)


def fit_with_callbacks(folder, bad):
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
        epochs=CALLBACK_EPOCHS,
        verbose=0,
        callbacks=given,
        validation_data=in_turn(zoo.VALIDATION),
        validation_batch_size=zoo.BATCH,
    )
    write_calls(folder, "fit", calls)


def write_calls(folder, task, calls):
    (folder / f"calls.{task}.json").write_text(json.dumps(calls.calls))
    write_weights(folder / f"weights.{task}.npz", calls.model)


def main(folder, names, with_callbacks):
    role = cluster.role_from(os.environ)
    task, is_alone = role.name.replace(":", "-"), role.size == 1
    for name in names:
        print(f"case {name}", flush=True)
        train_case(name, folder, task)
        if is_alone and zoo.CASES[name].as_fit:
            (folder / f"{name}.fit.json").write_text(json.dumps(fit_case(zoo.CASES[name])))
        keras.backend.clear_session()
    for data in ("good", "bad") if with_callbacks else ():
        storage.make_folder(str(folder / data / "fit"))
        train_with_callbacks(folder / data, data == "bad", task)
        keras.backend.clear_session()
        if is_alone:
            fit_with_callbacks(folder / data / "fit", data == "bad")
            keras.backend.clear_session()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--callbacks", action="store_true")
    options, _ = parser.parse_known_args()
    storage.make_folder(str(options.folder))
    try:
        main(options.folder, options.models, options.callbacks)
    except BaseException:  # noqa: BLE001 - whatever it is
        traceback.print_exc()
        os._exit(1)  # the others cannot continue without this task
