"""What replicas draw: numbers of their own, or with --same-random those of one worker."""

import json
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.keras_compat import keras_random
from distlaunch_trainer.step import random_draws, step_context
from distlaunch_trainer.step.step_context import StepRows

from ..conftest import environment_outside_clusters  # noqa: TID252

pytestmark = pytest.mark.slow

# Trains on one and on two virtual devices of one process; a layer records what it draws.
PROGRAM = """
import collections, json, random
from argparse import Namespace
from dataclasses import asdict

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer import Arrays, Run, run_start
from distlaunch_trainer.errors import TrainingStopped
from distlaunch_trainer.keras_compat import keras_random
from distlaunch_trainer.options import Settings

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategies = {
    1: tf.distribute.get_strategy(), 2: tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
}
layers, drawn = keras.layers, {}
WIDTH, ROWS, BATCH = 3, 53, 24


def record(name, step, replica, values):
    if step == 0:
        drawn[name.decode(), int(replica)] = values.tolist()


class Draws(layers.Layer):
    def __init__(self):
        super().__init__()
        self.generator = keras.random.SeedGenerator(5)
        self.numbers = tf.random.Generator.from_seed(5)
        # Steps, without those of the build.
        self.steps = self.add_weight(shape=(), dtype="int64", trainable=False, initializer="zeros")

    def call(self, x, training=False):
        if not training:
            return x
        shape, total = keras.ops.shape(x), x * random.random() * np.random.uniform()
        draws = {
            "keras": keras.random.normal(shape, dtype=x.dtype),
            "generator": keras.random.uniform(shape, dtype=x.dtype, seed=self.generator),
            "time steps": keras.random.uniform((shape[0] * 2, 1), dtype=x.dtype)[::2],
            "concatenated rows": keras.random.uniform(
                tf.shape(tf.concat([x, x], 0)), dtype=x.dtype
            )[: shape[0]],
            "classes": keras.random.categorical(x, 2, dtype="int64"),
            "dropout": keras.random.dropout(tf.ones_like(x), 0.5),
            "noise shape": keras.random.dropout(tf.ones_like(x), 0.5, noise_shape=(None, 1)),
            "normal": tf.random.normal(tf.shape(x), mean=2.0, dtype=x.dtype),
            "uniform": tf.random.uniform(tf.shape(x), -1, 1, dtype=x.dtype),
            "integers": tf.random.uniform([tf.shape(x)[0], 1], maxval=99, dtype=tf.int32),
            "TensorFlow 1": tf.compat.v1.random_normal(tf.shape(x), dtype=x.dtype),
            "TensorFlow's dropout": tf.nn.dropout(tf.ones_like(x), 0.5),
            "stateless": tf.random.stateless_normal(tf.shape(x), [1, 2], dtype=x.dtype),
            "generator of TensorFlow": self.numbers.normal(tf.shape(x), dtype=x.dtype),
            "in a function": tf.function(tf.random.normal)(tf.shape(x), dtype=x.dtype),
            "images": tf.image.random_flip_up_down(tf.reshape(x, [-1, 3, 1, 1]))[:, :, 0, 0],
        }
        context = tf.distribute.get_replica_context()  # None in the build
        replica = context.replica_id_in_sync_group if context else 0
        for name, values in draws.items():
            tf.numpy_function(record, [name, self.steps.value, replica, values], [])
            if name != "generator of TensorFlow":  # whose state is in no checkpoint
                total += 1e-2 * tf.cast(values[:, :1], x.dtype)
        self.steps.assign_add(1)
        return total


def create_model():
    keras.backend.clear_session()
    random.seed(1), np.random.seed(1)
    hidden = Draws(), layers.Dropout(0.5), layers.Dense(1)
    model = keras.Sequential([layers.Input((WIDTH,)), *hidden])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model


class StopsAt(keras.callbacks.Callback):
    def __init__(self, run, step):
        super().__init__()
        self.run, self.step = run, step

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations.numpy()) == self.step:
            self.run._stop.received = True


def train(job, replicas, stops_at=None, **options):
    run_start.connect = lambda *_: strategies[replicas]
    settings = Settings(
        job_dir=job, epochs=2, global_batch_size=BATCH, precision="float64", debug=True, **options
    )
    x = np.random.default_rng(0).normal(size=(ROWS, WIDTH))
    with Run(Namespace(**asdict(settings))) as run:
        run.load_data(lambda: Arrays(x, x.sum(1, keepdims=True)))
        with run.strategy.scope():
            model = run.build_model(create_model)
        try:
            run.fit(model, [StopsAt(run, stops_at)])
        except TrainingStopped:
            return None
    by_name = collections.defaultdict(list)
    for (name, _), values in sorted(drawn.items()):
        by_name[name].append(values)
    weights = np.concatenate([np.ravel(weight) for weight in model.get_weights()]).tolist()
    return {"drawn": by_name, "weights": weights, "dtype": model.layers[-1].compute_dtype}


results = {"alone": train("alone", 1, same_random=True)}
for job, same in {"own": False, "same": True}.items():
    drawn.clear()
    assert train(job, 2, stops_at=4, same_random=same) is None
    results[job] = train(job, 2, same_random=same)
print(json.dumps(results))
"""

DRAWN = {
    *("keras", "generator", "time steps", "classes", "dropout", "noise shape"),
    "concatenated rows",
    *("normal", "uniform", "integers", "TensorFlow 1", "TensorFlow's dropout"),
    *("generator of TensorFlow", "in a function", "images"),
}


@pytest.fixture(scope="module")
def printed(tensorflow, tmp_path_factory):
    folder = tmp_path_factory.mktemp("random")
    (folder / "program.py").write_text(PROGRAM)
    result = tensorflow.run("program", cwd=folder, env=environment_outside_clusters())
    assert result.code == 0, result.text
    return result


@pytest.fixture(scope="module")
def results(printed):
    return json.loads(printed.out.splitlines()[-1])


def test_replicas_draw_numbers_of_their_own(results):
    drawn = results["own"]["drawn"]
    assert drawn.keys() == DRAWN | {"stateless"}
    assert [name for name, (one, other) in drawn.items() if one == other] == ["stateless"]


def test_warnings_name_the_lines_that_draw(printed):
    line = PROGRAM[: PROGRAM.index('"normal": ')].count("\n") + 1
    place = rf"\(.*program.py, line {line};.*\)"
    assert re.search(rf"draws random numbers {place}, each replica its own", printed.err)
    assert re.search(rf"tf.random draws by keras.random {place}: the same on any", printed.err)


def test_a_warning_names_draws_that_no_checkpoint_holds(printed):
    warning = "tf.random (RandomStandardNormal, RandomUniform, RandomUniformInt)"
    assert printed.err.count(warning) == 1


def test_replicas_draw_with_the_option_what_one_worker_draws(results):
    together = results["same"]["drawn"]
    for name, (expected,) in results["alone"]["drawn"].items():
        rows = np.empty_like(expected)
        rows[::2], rows[1::2] = together[name]
        np.testing.assert_array_equal(rows, expected, err_msg=name)


def test_weights_are_with_the_option_those_of_one_worker_also_when_resumed(results):
    one, two = (results[job]["weights"] for job in ("alone", "same"))
    np.testing.assert_allclose(two, one, rtol=0, atol=1e-12)


def test_clear_session_in_create_model_keeps_strategy_and_precision(results):
    assert {result["dtype"] for result in results.values()} == {"float64"}


ROWS = tf.TensorSpec([None, 3])
# Their generators cannot be made as a step is traced.
MIX_UP, FLIP, NOISE = (
    keras.layers.MixUp(),
    keras.layers.RandomFlip(),
    keras.layers.GaussianNoise(0.5),
)


@pytest.fixture
def same(monkeypatch):
    """Trace what replicas draw with --same-random, by a function that is given their rows."""
    random_draws.install(same=True)
    monkeypatch.setattr(keras_random._draws, "generator", keras.random.SeedGenerator(0))

    @tf.function(autograph=False)
    def step(draw, x):
        rows = tf.shape(x, tf.int64)[0]
        with step_context.extended(rows=StepRows(rows, rows * 2, 2, False, is_divided=True)):
            return draw(x)

    yield lambda draw: step.get_concrete_function(draw, ROWS).graph
    keras_random._draws.are_same = False


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: tf.random.shuffle(x, 1),
        lambda x: keras.random.shuffle(x, seed=1),
        lambda x: tf.random.gamma([], tf.ones_like(x)),
        lambda x: keras.random.gamma(tf.shape(x), 1.0, seed=1),
        lambda x: keras.random.beta(tf.shape(x), 1.0, 2.0, seed=1),
        lambda x: keras.random.binomial(tf.shape(x), 1.0, 0.5, seed=1),
        lambda x: tf.raw_ops.RandomStandardNormal(shape=tf.shape(x), dtype=tf.float32),
        lambda x: tf.random.normal([3, tf.shape(x)[0]]),
        lambda x: tf.map_fn(lambda row: row + tf.random.normal([3]), x),
        lambda x: tf.cond(tf.reduce_any(x > 0), lambda: tf.random.shuffle(x), lambda: x),
        lambda x: MIX_UP(tf.reshape(x, [-1, 3, 1, 1]), training=True),
    ],
)
def test_other_draws_are_refused_with_their_line(same, draw):
    with pytest.raises(ModelError) as refused:
        random_draws.refuse_other_draws(same(draw))
    line = draw.__code__.co_firstlineno
    assert f"step/test_random_draws.py, line {line})" in str(refused.value)


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: tf.random.normal([24, 3]),  # as many numbers on any number of replicas
        lambda x: tf.image.random_brightness(tf.reshape(x, [-1, 3, 1, 1]), 0.5),
        lambda x: keras.random.shuffle(tf.transpose(x), axis=0, seed=1),
        lambda x: NOISE(x, training=True),
        lambda x: FLIP(tf.reshape(x, [-1, 3, 1, 1]), training=True),
    ],
)
def test_what_does_not_depend_on_replicas_is_not_refused(same, draw):
    random_draws.refuse_other_draws(same(draw))


def test_constant_numbers_are_not_divided(same):
    graph = same(lambda _: tf.random.normal([24, 3]))
    assert [draw.outputs[0].shape for draw in keras_random.draws_in(graph)] == [[24, 3]]
