"""When the loop waits for results, and for other tasks."""

import json

import pytest

PROGRAM = """
import json, sys, weakref
from argparse import Namespace
from dataclasses import asdict

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer import Arrays, Run, run_start
from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.step import step_functions
from distlaunch_trainer.options import Settings

calls, traces, iterators = [], [], []
train, all_reduce_sum = step_functions.StepFunctions.train, Cluster.all_reduce_sum


class Recorded(step_functions.Execution):
    @property
    def loss(self):
        calls.append("read")
        return self[0]


def record_train(self, *arguments, has_empty_replicas, **options):
    calls.append("launch the last" if has_empty_replicas else "launch")
    iterators.append(weakref.ref(arguments[0]))
    results = train(self, *arguments, has_empty_replicas=has_empty_replicas, **options)
    traces.append(self._train_function.experimental_get_tracing_count())
    return Recorded(*results)


def record_sum(self, value):
    calls.append("collective")
    return all_reduce_sum(self, value)


class BatchHook(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        calls.append("hook")


def create_model():
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


step_functions.StepFunctions.train, Cluster.all_reduce_sum = record_train, record_sum
settings = Settings(job_dir="job", epochs=1, steps_per_epoch=4, global_batch_size=2)
step_by_step, is_last_small = sys.argv[1] == "hook", sys.argv[1] == "last"
if is_last_small:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    run_start.connect = lambda *_: tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    settings = Settings(job_dir="job", epochs=3, global_batch_size=2)
rows = 9 if is_last_small else 8
from distlaunch_trainer.loop import step_runner
if is_last_small:
    step_runner._SECONDS_PER_EXECUTION = 1e9  # as many as the steps before allow
else:
    step_runner._MAX_STEPS = 1
with Run(Namespace(**asdict(settings))) as run:
    run.load_data(lambda: Arrays(np.zeros((rows, 1)), np.zeros((rows, 1))))
    with run.strategy.scope():
        model = run.build_model(create_model)
    run.fit(model, [BatchHook()] if step_by_step else [])
    is_kept = iterators[-1]() is not None
if is_last_small:
    print(json.dumps([*(call for call in calls if "launch" in call), traces, is_kept]))
else:
    first = calls.index("launch")
    print(json.dumps(calls[first : first + (12 if step_by_step else 8)]))
"""


@pytest.fixture
def calls(run_code):
    def run(kind):
        result = run_code(PROGRAM, kind)
        assert result.code == 0, result.text
        return json.loads(result.out.splitlines()[-1])

    return run


def test_results_are_read_when_the_next_steps_are_launched(calls):
    launch, read = "launch", "read"
    assert calls("late") == [launch, launch, read, launch, read, launch, read, read]


def test_a_batch_hook_sees_each_step_and_needs_no_agreement_of_its_own(calls):
    assert calls("hook") == ["launch", "read", "hook"] * 4


def test_only_the_last_step_is_compiled_for_replicas_without_rows(calls):
    """Nine rows in batches of two: the last has one, and two replicas; three epochs.

    The iterator is kept until the model is saved, for TensorFlow may take a minute to delete it.
    """
    *launched, traces, is_kept = calls("last")
    last = "launch the last"
    assert launched == ["launch"] * 4 + [last, "launch", last, "launch", last]
    assert traces[-1] == 2
    assert is_kept


SKIPS = """
import keras
import numpy as np

from distlaunch_trainer import Arrays, Run, options
from distlaunch_trainer.errors import TrainerError

def create_model():
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model

x = np.full((50, 1), np.nan)
arguments = "--job-dir=job --epochs=3 --global-batch-size=2 --shuffle=0 --precision=mixed_float16"
with Run(options.parser().parse_args([*arguments.split(), "--shards=1"])) as run:
    run.load_data(lambda: Arrays(x, x))
    with run.strategy.scope():
        model = run.build_model(create_model)
    try:
        run.fit(model)
    except TrainerError as error:
        print(error)
"""


def test_updates_that_loss_scaling_skips_for_ever_end_the_run(run_code):
    """An epoch has 25 steps, in several executions."""
    result = run_code(SKIPS)
    assert "50 updates in a row were skipped up to step 50, because gradients" in result.out
    assert "epoch 1/3" in result.out
