"""Trains the models of the zoo one after the other in one cluster.

    python -m train_zoo --folder FOLDER --models NAME...

Each task writes the weights that it ends with; alone, it also lets `fit` train on the same batches.
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


def arrays(case, examples):
    x, y, weights, class_weight = case.data(examples)
    return Arrays(x, y, weights, class_weight)


class KeepWeights(keras.callbacks.Callback):
    """Each task writes its own."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def on_train_end(self, logs=None):
        values = [*self.model.weights, *self.model.optimizer.variables]
        np.savez(self.path, *[np.asarray(v.value, float) for v in values])


def train(name, case, folder, task):
    kept = folder / f"{name}.{task.replace(':', '-')}.npz"
    user = UserCode(
        create_model=case.create_model,
        callbacks=lambda: [KeepWeights(kept)],
        training=lambda: arrays(case, zoo.EXAMPLES),
        validation=lambda: arrays(case, zoo.VALIDATION),
    )
    settings = Settings(
        job_dir=str(folder / name),
        epochs=zoo.EPOCHS,
        global_batch_size=zoo.BATCH,
        seed=zoo.SEED,
        precision=case.precision,
        sync_batch_norm=case.sync_batch_norm,
        debug=True,
    )
    run._run(settings, lambda: user)


def fit(case):
    """Return the history of Keras's own loop on the very batches that one worker gets."""
    alone = cluster.Team(cluster.Role(), tf.distribute.get_strategy())
    batches = [
        Pipeline(arrays(case, examples).open(alone, ""), plan, order)
        .dataset(range(1))
        .map(lambda data, rows, total: data)
        for examples, plan, order in (
            (zoo.EXAMPLES, Plan(zoo.EXAMPLES, zoo.BATCH), Order(zoo.SEED, 10_000)),
            (zoo.VALIDATION, Plan(zoo.VALIDATION, zoo.BATCH), Order()),
        )
    ]
    keras.utils.set_random_seed(zoo.SEED)
    model = case.create_model()
    steps = [-(-count // zoo.BATCH) for count in (zoo.EXAMPLES, zoo.VALIDATION)]
    done = model.fit(
        batches[0],
        steps_per_epoch=steps[0],
        epochs=zoo.EPOCHS,
        validation_data=batches[1],
        validation_steps=steps[1],
        verbose=0,
    )
    return [{k: v[n] for k, v in done.history.items()} for n in range(zoo.EPOCHS)]


def main(folder, names):
    role = cluster.role_from(os.environ)
    for name in names:
        case = zoo.CASES[name]
        print(f"case {name}", flush=True)
        train(name, case, folder, role.name)
        if role.size == 1 and case.as_fit:
            (folder / f"{name}.fit.json").write_text(json.dumps(fit(case)))
        keras.backend.clear_session()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--models", nargs="+")
    options, _ = parser.parse_known_args()
    storage.make_folder(str(options.folder))
    try:
        main(options.folder, options.models)
    except BaseException:  # noqa: BLE001 - whatever it is
        traceback.print_exc()
        os._exit(1)  # the others cannot continue without this task
