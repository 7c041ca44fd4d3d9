"""Trains models of the zoo one after the other in one cluster.

    python -m train_zoo --folder FOLDER --models NAME...

Each task writes the weights that a model ends with, and the calls that its callbacks got, as
TASK.npz and TASK.json. A task alone also lets `fit` train on the same batches, in a folder `fit`.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import traceback
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

import keras
import numpy as np
import zoo

from distlaunch_trainer import Arrays, run, run_start
from distlaunch_trainer.cluster import strategy
from distlaunch_trainer.cluster.role import role_from
from distlaunch_trainer.options import Settings
from distlaunch_trainer.task import storage

_connect = functools.cache(strategy.connect)
run_start.connect = lambda role, _: _connect(role)
run.save_model = lambda model, folder, report: []  # takes as long as the training


class Calls(keras.callbacks.Callback):
    """Records every call, and what a callback would look at."""

    def __init__(self, name, calls):
        super().__init__()
        self.name = name
        self.calls = calls

    def record(self, hook, number, logs):
        rate = float(self.model.optimizer.learning_rate)
        self.calls.append([self.name, hook, number, rate, dict(logs or {})])


def _recording(hook):
    if "epoch" in hook or "batch" in hook:
        return lambda self, number, logs=None: self.record(hook, number, logs)
    return lambda self, logs=None: self.record(hook, None, logs)


for hook in dir(keras.callbacks.Callback):
    if hook.startswith("on_"):
        setattr(Calls, hook, _recording(hook))


class Keep(keras.callbacks.Callback):
    """Writes the weights, those of the optimizer too, and the recorded calls."""

    def __init__(self, path, calls):
        super().__init__()
        self.path = path
        self.calls = calls

    def on_train_end(self, logs=None):
        values = [*self.model.weights, *self.model.optimizer.variables]
        np.savez(self.path, *[np.asarray(v.value, float) for v in values])
        self.path.with_suffix(".json").write_text(json.dumps(self.calls))


class EndsEvaluation(keras.callbacks.Callback):
    """Ends the validation of the first epoch early."""

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_test_batch_end(self, batch, logs=None):
        if self.epoch == 0 and batch == 1:
            self.model.stop_evaluating = True


def callbacks_of(name, folder, task):
    known, calls = keras.callbacks, []
    keep = Keep(folder / f"{task}.npz", calls)

    def add_epoch(epoch, logs):
        calls.append(["lambda", "on_epoch_end", epoch, 0.0, dict(logs)])

    if name == "bad_value":
        return [Calls("first", calls), known.TerminateOnNaN(), keep]
    if name != "with_callbacks":
        return [keep]
    return [
        Calls("first", calls),
        EndsEvaluation(),
        known.LearningRateScheduler(lambda epoch, rate: rate * (0.9 if epoch < 3 else 1)),
        known.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, min_delta=0.03),
        known.EarlyStopping("val_loss", patience=2, min_delta=0.03, restore_best_weights=True),
        known.ModelCheckpoint(folder / "best.keras", "val_loss", save_best_only=True),
        known.CSVLogger(folder / "log.csv"),
        known.TensorBoard(folder / "board", histogram_freq=1),
        known.LambdaCallback(on_epoch_end=add_epoch),
        Calls("last", calls),
        keep,
    ]


def train(name, case, folder, task):
    settings = Settings(
        job_dir=str(folder),
        epochs=case.epochs,
        global_batch_size=zoo.BATCH,
        seed=zoo.SEED,
        shuffle=0,
        same_random=True,
        precision=case.precision,
        sync_batch_norm=case.sync_batch_norm,
        debug=True,
    )
    with run.Run(Namespace(**asdict(settings))) as training:
        training.load_data(
            lambda: Arrays(*case.data(zoo.EXAMPLES)),
            lambda: Arrays(*case.data(zoo.VALIDATION)[:3]),
        )
        with training.strategy.scope():
            model = training.build_model(case.create_model)
        training.fit(model, callbacks_of(name, folder, task), case.train_step)
        if training.is_chief:
            training.save_model(model)


def fit(name, case, folder):
    """Train with Keras's own loop on the same batches."""
    keras.utils.set_random_seed(zoo.SEED)
    model = case.create_model()
    x, y, sample_weight, class_weight = case.data(zoo.EXAMPLES)
    done = model.fit(
        x,
        y,
        sample_weight=sample_weight,
        class_weight=class_weight,
        batch_size=zoo.BATCH,
        shuffle=False,
        epochs=case.epochs,
        validation_data=case.data(zoo.VALIDATION)[:3],
        validation_batch_size=zoo.BATCH,
        callbacks=callbacks_of(name, folder, "task"),
        verbose=0,
    )
    (folder / "history.json").write_text(json.dumps(done.history, default=np.ndarray.tolist))


def resume_from_one_worker(name, case, folder, role):
    """Train from the checkpoint that one worker saved after its first epoch."""
    checkpoint = folder.parent / "1" / name / "checkpoints/step-00000011"
    resumed = folder / "resumed" / name
    if role.is_chief:
        shutil.copytree(checkpoint, resumed / "checkpoints" / checkpoint.name)
    storage.make_folder(str(resumed))
    train(name, case, resumed, role.name.replace(":", "-"))


def main(folder, names):
    role = role_from(os.environ)
    for name in names:
        print(f"case {name}", flush=True)
        case = zoo.CASES[name]
        storage.make_folder(str(folder / name / "fit"))
        train(name, case, folder / name, role.name.replace(":", "-"))
        if role.num_workers == 1 and case.as_fit:
            fit(name, case, folder / name / "fit")
        if role.num_workers > 1 and name == "adversarial":
            resume_from_one_worker(name, case, folder, role)
        keras.backend.clear_session()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--models", nargs="+")
    options, _ = parser.parse_known_args()
    try:
        main(options.folder, options.models)
    except BaseException:  # noqa: BLE001 - whatever it is
        traceback.print_exc()
        os._exit(1)  # the others cannot continue without this task
