"""Parameter servers: training, partitioned variables, and what the loss of each task costs.

`make laws` also trains on other data and models, and loses the last worker.
"""

import json
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from .conftest import LAWS, REGRESSION_DATA

pytestmark = pytest.mark.slow

SERVERS = (
    *("--workers", "3", "--set", "cluster.parameter_servers.machine=n1-standard-4"),
    *("--set", "cluster.parameter_servers.count=2"),
)
ONE_WORKER = ("--workers", "2", *SERVERS[2:])
EVALUATOR = ("--set", "cluster.evaluators.machine=n1-standard-4")

# Learns digits; an embedding that is large enough to be partitioned, and layers with state.
MODEL = """
import os, signal
import keras
import numpy as np

def create_model():
    layers, ops = keras.layers, keras.ops
    image = keras.Input((8, 8, 1))
    places = np.arange(64, dtype="int32") * 300
    tokens = ops.cast(ops.reshape(image, (-1, 64)) * 16, "int32") + places
    words = layers.Embedding(64 * 300, 8)(tokens)
    seen = layers.BatchNormalization()(layers.Conv2D(16, 3, activation="relu")(image))
    hidden = layers.Concatenate()([layers.Flatten()(words), layers.Flatten()(seen)])
    output = layers.Dense(10)(layers.Dropout(0.1)(hidden))
    model = keras.Model(image, output)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(4e-3), loss, metrics=["accuracy"])
    return model

class Stop(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == int(os.environ.get("STOP_IN", -1)):
            os.kill(os.getpid(), signal.SIGTERM)

    def get_state(self):
        return None

    def set_state(self, state):
        pass

def callbacks():
    return [Stop(), keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9)]
"""

# Everything that a variable on a server could lose: regularizers, constraints, weight decay with
# exceptions, averages, a schedule, moving statistics; and a weight that is partitioned.
LAW_MODEL = """
import keras

class Halved(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return 1e-2 * 0.5 ** (keras.ops.cast(step, "float64") / 3.0)

def create_model():
    layers, regularizers = keras.layers, keras.regularizers
    model = keras.Sequential([
        layers.Input((6,)),
        layers.Dense(128, activation="tanh", kernel_constraint="max_norm"),
        layers.Dense(1024, activation="tanh", kernel_regularizer=regularizers.L2(1e-2),
                     activity_regularizer=regularizers.L2(1e-2)),
        layers.BatchNormalization(),
        layers.Dense(1, use_bias=False),
    ])
    optimizer = keras.optimizers.AdamW(Halved(), global_clipnorm=0.5, use_ema=True)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    model.compile(optimizer, "mse", metrics=["mae"])
    return model
"""


TEST = """
def test():
    return Records(f"{DATA}/validation-*.tfrecord", parse_batch=parse)"""


@pytest.fixture(scope="module")
def trained(new_project):
    """A job that lost a worker, with its output."""
    project = new_project(MODEL)
    project.replace("trainer/data.py", "def parse(", f"{TEST}\n\n\ndef parse(")
    kill = ("--kill", "worker:0@step=50")
    result = project.local("job", *SERVERS, *EVALUATOR, *kill, "--", "--epochs", "4")
    return project, result


def test_the_job_continues_without_a_killed_worker(trained):
    project, result = trained
    assert "worker:0 was killed by signal 9 (SIGKILL); the job continues without it" in result.text
    summary = project.summary("job")
    assert summary["tasks"] == ["chief", "worker:0", "worker:1", "ps:0", "ps:1"]
    assert (summary["restarts"], summary["steps"]) == (0, 4 * 45)
    # The last batch of a worker's pass has 29 rows.
    assert all(45 * 29 < epoch["examples"] <= 45 * 32 for epoch in summary["epochs"])


def test_digits_are_learned_and_the_model_loads_in_plain_keras(trained):
    project, _ = trained
    last = project.summary("job")["epochs"][-1]["logs"]
    assert last["accuracy"] > 0.95
    assert last["val_accuracy"] > 0.9
    test = project.summary("job")["test"]
    assert test["loss"] == pytest.approx(last["val_loss"], rel=1e-5)  # of the same examples
    # Its callbacks and the coordinator's count of the steps are those of the servers.
    model = keras.models.load_model(project.folder / "job/model/model.keras")
    assert model.optimizer.iterations.numpy() == 180
    np.testing.assert_allclose(model.optimizer.learning_rate, 4e-3 * 0.9**4, rtol=1e-5)
    project.check_model("job")


def test_the_evaluator_evaluates_the_checkpoints(trained):
    project, _ = trained
    lines = (project.folder / "job/evaluations.jsonl").read_text().splitlines()
    logs = {each["step"]: each["logs"] for each in map(json.loads, lines)}
    last = project.summary("job")["epochs"][-1]["logs"]
    expected = {name: last[f"val_{name}"] for name in ("loss", "accuracy")}
    assert logs[180] == pytest.approx(expected, rel=1e-4)


def test_the_weaker_promises_and_the_partition_are_printed_once(trained):
    _, result = trained
    assert "strategy: parameter-server, 2 workers, 2 parameter servers" in result.out
    assert result.text.count("train asynchronously: weights depend on timing") == 1
    assert "variables: 7 weights on 2 parameter servers, 1 of them partitioned" in result.out


def test_a_stopped_job_resumes_and_a_lost_parameter_server_restarts_it(trained):
    project, _ = trained
    more = ("--", "--epochs", "7", "--checkpoint-every", "15")
    project.environment["STOP_IN"] = "4"
    stopped = project.local("job", "--resume", *SERVERS, *more, code=143)
    step = int(re.search(r"stopped by a signal: saved at step (\d+)", stopped.text)[1])
    assert 180 <= step < 225
    project.environment.clear()
    faults = ("--restarts", "1", "--kill", "ps:0@step=240")
    result = project.local("job", "--resume", *SERVERS, *faults, *more)
    assert f"resuming after step {step}" in result.text
    assert re.search(r"ps:0 was killed by signal 9|ps:0 \S+ is gone, and variables", result.text)
    resumed = [int(number) for number in re.findall(r"resuming after step (\d+)", result.text)]
    assert len(resumed) == 2
    assert resumed[1] >= 225
    summary = project.summary("job")
    assert (summary["restarts"], summary["steps"]) == (1, 7 * 45)
    assert summary["epochs"][-1]["logs"]["val_accuracy"] > 0.9


def weights_of(project, job):
    """Return the weights of a SavedModel: Keras cannot write a model with such a schedule."""
    model = tf.saved_model.load(str(project.folder / job / "model"))
    return np.concatenate([np.ravel(variable) for variable in model.variables])


def assert_same_weights(project, *jobs):
    ours, theirs = (weights_of(project, job) for job in jobs)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)


if LAWS:

    def test_the_job_continues_without_a_killed_evaluator(project):
        kill = ("--kill", "evaluator:0@step=20")
        result = project.local("job", "--workers", "1", *EVALUATOR, *kill, "--", "--epochs", "2")
        assert "evaluator:0 was killed by signal 9 (SIGKILL); the job continues" in result.text
        assert len(project.summary("job")["epochs"]) == 2

    def test_steps_of_all_examples_train_the_weights_of_one_process(new_project):
        """Without other workers, and with one batch, nothing is left to timing."""
        project = new_project(LAW_MODEL, REGRESSION_DATA)
        settings = ("--", "--epochs=5", "--precision=float64", "--batch-size=121")
        project.local("one", "--workers", "1", *settings)
        result = project.local("servers", *ONE_WORKER, *settings)
        assert "7 weights on 2 parameter servers, 1 of them partitioned" in result.out
        assert_same_weights(project, "servers", "one")
        ours, theirs = project.summary("servers")["epochs"], project.summary("one")["epochs"]
        for epoch, expected in zip(ours, theirs, strict=True):
            assert epoch["logs"] == pytest.approx(expected["logs"], abs=1e-9)
        # And the other way round: the checkpoint of the servers resumes in one process.
        project.local("servers", "--resume", "--workers", "1", "--", "--epochs=7", *settings[2:])
        project.local("one", "--resume", "--workers", "1", "--", "--epochs=7", *settings[2:])
        assert_same_weights(project, "servers", "one")
