"""Models with losses of all kinds, trained by one worker and by replicas with uneven rows.

    python loss_cases.py REPLICAS CASE...

Prints a JSON object: for each case the warnings, and the largest difference of weights and loss.
"""

from __future__ import annotations

import functools
import itertools
import json
import sys
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer.model.model_build import build_model
from distlaunch_trainer.step.additivity import compare_parts
from distlaunch_trainer.step.model_replicas import ModelReplicas
from distlaunch_trainer.step.step_functions import StepFunctions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

layers, ops, losses = keras.layers, keras.ops, keras.losses
ROWS, SIZES = 50, (16, 13, 11, 10)
R = np.random.default_rng(0)
X, Y, C, W = (
    R.normal(size=(ROWS, 6)),
    R.normal(size=(ROWS, 3)),
    R.integers(0, 3, ROWS),
    R.random(ROWS),
)
IMAGES = R.normal(size=(ROWS, 4, 4, 1))
MASKS = (R.random((ROWS, 4, 4, 1)) > 0.6).astype("float64")
TOKENS = R.integers(0, 5, (ROWS, 7))
SGD = keras.optimizers.SGD
CASES: dict[str, Callable[[], tuple[keras.Model, Any]]] = {}


def case(make: Callable[[], tuple[keras.Model, Any]]) -> Callable[[], tuple[keras.Model, Any]]:
    CASES[make.__name__] = make
    return make


def dense(*extra: Any, regularizer: Any = None, **options: Any) -> tuple[keras.Model, Any]:
    hidden = layers.Dense(8, "tanh", kernel_regularizer=regularizer)
    model = keras.Sequential([keras.Input((6,)), hidden, *extra, layers.Dense(3)])
    model.compile(**{"optimizer": SGD(0.1), "loss": "mse", **options})
    return model, (X, Y)


def segmentation(loss: Any, **options: Any) -> tuple[keras.Model, Any]:
    first = layers.Conv2D(4, 3, padding="same", activation="tanh")
    model = keras.Sequential(
        [keras.Input((4, 4, 1)), first, layers.Conv2D(1, 1, activation="sigmoid")]
    )
    model.compile(**{"optimizer": SGD(0.5), "loss": loss, **options})
    return model, (IMAGES, MASKS)


def adding(function: Callable[[Any], Any]) -> Any:
    class Adds(layers.Layer):
        def call(self, x: Any, training: bool = False) -> Any:
            if training:
                self.add_loss(function(x))
            return x

    return Adds()


@case
def l2_loss() -> Any:
    return dense(adding(lambda x: 0.01 * tf.nn.l2_loss(x)))


class Picky(layers.Layer):
    """Adds a number for each row, of rows that have negative numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(8)

    def call(self, x: Any) -> Any:
        least = tf.cast(tf.reduce_min(x), "float32")
        with tf.control_dependencies([tf.debugging.assert_less(least, 0.0, "all are positive")]):
            hidden = self.dense(tf.identity(x))
        self.add_loss(0.01 * tf.reduce_sum(tf.square(hidden), axis=1))
        return hidden


@case
def rows_of_a_layer_that_refuses_made_up_numbers() -> Any:
    model = keras.Sequential([Picky(), layers.Dense(3)])
    model.compile(SGD(0.1), "mse")
    return model, (X, Y)


@case
def function_in_layer() -> Any:
    return dense(adding(tf.function(lambda x: 0.01 * tf.reduce_sum(tf.square(x)))))


@case
def mean_of_sums() -> Any:
    return dense(adding(lambda x: 0.01 * ops.mean(ops.sum(ops.square(x), axis=0))))


@case
def sum_run_eagerly() -> Any:
    return dense(adding(lambda x: 0.01 * ops.sum(ops.square(x))), run_eagerly=True)


@case
def vector() -> Any:
    return dense(adding(lambda x: 0.01 * ops.sum(ops.square(x), axis=1)))


@case
def mean_and_regularizers() -> Any:
    activity = layers.ActivityRegularization(l2=0.01)
    return dense(adding(lambda x: ops.mean(ops.abs(x))), activity, regularizer="l1")


@case
def sum_behind_synchronized_normalization() -> Any:
    norm = layers.BatchNormalization(synchronized=True)
    return dense(layers.Dropout(0.0), norm, adding(lambda x: 0.01 * ops.sum(ops.square(x))))


@case
def sum_with_another_term() -> Any:
    return dense(adding(lambda x: 0.01 * ops.sum(ops.square(x)) + ops.mean(ops.abs(x))))


@case
def masked_mean_that_is_added() -> Any:
    def masked(x: Any) -> Any:
        mask = ops.cast(x > 0, x.dtype)
        return ops.sum(x * mask) / ops.sum(mask)

    return dense(adding(masked))


@case
def sum_in_xla() -> Any:
    return dense(
        adding(lambda x: 0.01 * ops.sum(ops.square(x))), regularizer="l2", jit_compile=True
    )


@case
def dice() -> Any:
    return segmentation(losses.Dice())


@case
def dice_with_weights_and_accumulation() -> Any:
    sgd = SGD(0.5, gradient_accumulation_steps=2, global_clipnorm=0.1)
    model, data = segmentation(losses.Dice(), optimizer=sgd)
    return model, (*data, W)


@case
def tversky_in_xla() -> Any:
    return segmentation(losses.Tversky(), jit_compile=True)


@case
def tversky_scaled() -> Any:
    return segmentation(
        losses.Tversky(reduction="sum"), optimizer=keras.optimizers.LossScaleOptimizer(SGD(0.5))
    )


@case
def circle() -> Any:
    model, _ = dense(layers.UnitNormalization(), loss=losses.Circle())
    return model, (X, C)


@case
def circle_unreduced() -> Any:
    model, _ = dense(layers.UnitNormalization(), loss=losses.Circle(reduction="none"))
    model.optimizer.learning_rate = 0.01
    return model, (X, C)


@case
def pairs() -> Any:
    def contrastive(_: Any, z: Any) -> Any:
        z = ops.normalize(z, axis=1)
        return keras.losses.sparse_categorical_crossentropy(
            ops.arange(ops.shape(z)[0]), ops.matmul(z, ops.transpose(z)) / 0.5, from_logits=True
        )

    return dense(loss=contrastive)


@case
def mean_by_function() -> Any:
    return dense(loss=lambda y, p: ops.mean(ops.square(y - p)))


@case
def mean_by_function_with_weights() -> Any:
    model, data = dense(loss=lambda y, p: ops.mean(ops.square(y - p)))
    return model, (*data, W)


@case
def mean_of_targets_that_are_not_missing() -> Any:
    model, _ = dense(loss=of_known)
    return model, (X, np.where(W[:, np.newaxis] > Y, -1.0, Y))


def of_known(y: Any, p: Any) -> Any:
    known = ops.cast(ops.not_equal(y, -1), p.dtype)
    return ops.sum(known * ops.square(y - p)) / ops.sum(known)


@case
def largest_errors_of_more_rows_than_are_made_up() -> Any:
    return dense(loss=lambda y, p: ops.top_k(ops.mean(ops.square(y - p), -1), 6)[0])


@case
def two_outputs_of_which_one_is_masked() -> Any:
    x = keras.Input((7,), dtype="int64")
    hidden = layers.LSTM(5, return_sequences=True)(layers.Embedding(5, 5, mask_zero=True)(x))
    outputs = [
        layers.Dense(1, "sigmoid", name="a")(hidden),
        layers.Dense(3, name="b")(layers.GlobalAveragePooling1D()(hidden)),
    ]
    model = keras.Model(x, outputs)
    model.compile(SGD(0.1), [losses.Tversky(), "mae"], loss_weights=[0.3, 2.0])
    return model, (TOKENS, ((TOKENS > 2)[..., None] * 1.0, Y))


class Mixes(layers.Layer):
    def call(self, x: Any) -> Any:
        return x + ops.tensordot(ops.softmax(x, axis=0), x, axes=[[0], [0]])[0]


@case
def layer_over_rows() -> Any:
    return dense(Mixes())


class Step(keras.Model):
    """Differentiates any function of outputs and targets."""

    def __init__(self, function: Callable[[Any, Any], Any], hidden: Any, clip: float) -> None:
        super().__init__()
        self.hidden = keras.Sequential([layers.Dense(8, "tanh"), hidden])
        self.out, self.function, self.clip_norm = layers.Dense(3), function, clip
        self.count = tf.Variable(0, trainable=False)

    def call(self, x: Any, training: bool = False) -> Any:
        return self.out(self.hidden(x, training=training))

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        self.count.assign_add(1)
        with tf.GradientTape() as tape:
            loss = self.function(y, self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        if self.clip_norm:
            gradients, _ = tf.clip_by_global_norm(gradients, self.clip_norm)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {}


def step(function: Callable[[Any, Any], Any], hidden: Any = None, clip: float = 0.0) -> Any:
    model = Step(function, hidden or layers.Dropout(0.0), clip)
    model.compile(SGD(0.01))
    return model, (X, Y)


@case
def step_with_sum() -> Any:
    return step(lambda y, p: tf.nn.l2_loss(y - p))


@case
def step_with_mean() -> Any:
    norm = layers.BatchNormalization(synchronized=True)
    return step(lambda y, p: tf.reduce_mean(tf.square(y - p)), norm)


@case
def step_with_pairs() -> Any:
    return step(lambda y, p: tf.reduce_mean(tf.square(tf.matmul(p, p, transpose_b=True))))


@case
def step_that_compares_rows_in_the_compiled_loss() -> Any:
    norm = layers.BatchNormalization(synchronized=True)
    model, data = step(lambda y, p: model.compute_loss(None, y, p), norm)
    model.compile(SGD(0.01), lambda y, p: ops.mean(ops.square(ops.matmul(p, ops.transpose(y)))))
    return model, data


@case
def step_that_clips() -> Any:
    return step(lambda y, p: tf.reduce_mean(tf.square(y - p)), clip=0.01)


class OwnLoss(keras.Model):
    """Adds a term to the compiled loss, or computes it alone."""

    def __init__(self, term: Callable[[Any], Any]) -> None:
        super().__init__()
        self.term, self.out = term, keras.Sequential([layers.Dense(8, "tanh"), layers.Dense(3)])

    def call(self, x: Any) -> Any:
        return self.out(x)

    def compute_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        term = 0.01 * self.term(y_pred - y)
        return term + (super().compute_loss(x, y, y_pred, sample_weight) if self.loss else 0.0)


def own_loss(term: Callable[[Any], Any], loss: Any = "mse") -> Any:
    model = OwnLoss(term)
    model.compile(SGD(0.01), loss)
    return model, (X, Y)


@case
def compute_loss_with_mean() -> Any:
    return own_loss(lambda error: ops.mean(ops.abs(error)))


@case
def compute_loss_with_sum() -> Any:
    return own_loss(lambda error: ops.sum(ops.abs(error)))


@case
def compute_loss_of_sums() -> Any:
    return own_loss(lambda error: ops.sum(ops.abs(error)), loss=None)


@functools.cache
def strategy_of(replicas: int) -> tf.distribute.Strategy:
    """Return the one of all cases: the numbers of collectives begin again with another."""
    if replicas == 1:
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(replicas)])


def train(
    make: Callable[[], tuple[keras.Model, Any]], replicas: int
) -> tuple[list[str], list[Any]]:
    keras.utils.set_random_seed(1)
    strategy = strategy_of(replicas)
    with strategy.scope():
        model, data = make()
        spec = tf.nest.map_structure(lambda v: tf.TensorSpec((None, *v.shape[1:]), v.dtype), data)
        notes = build_model(model, spec)
        before = [v.numpy() for v in (*model.variables, *model.optimizer.variables)]
        notes += compare_parts(model, spec) if replicas > 1 else []
        after = [v.numpy() for v in (*model.variables, *model.optimizer.variables)]
        for one, other in zip(before, after, strict=True):
            np.testing.assert_array_equal(one, other)
        if isinstance(model, Step):
            assert int(tf.identity(model.count)) == 0
    steps = StepFunctions(ModelReplicas(model, strategy))

    elements = tf.data.Dataset.from_generator(
        lambda: parts(data, replicas),
        output_signature=(spec, *[tf.TensorSpec((), tf.int64)] * 2),
    )
    iterator = iter(strategy.distribute_datasets_from_function(lambda _: elements))
    loss = [float(steps.train(iterator, tf.constant(1), tf.zeros([3])).loss) for _ in SIZES]
    steps.synchronize()
    is_estimate = isinstance(model, Step) or model.optimizer.gradient_accumulation_steps
    return notes, [np.array([] if is_estimate else loss), *model.get_weights()]


def parts(data: Any, replicas: int) -> Iterator[Any]:
    """Yield the rows of each replica in each step, and their number, and that of all."""
    edges = np.cumsum([0, *SIZES])
    for first, last in itertools.pairwise(edges):
        for replica in range(replicas):
            own = slice(first + replica, last, replicas)
            rows = tf.nest.map_structure(lambda v, own=own: v[own], data)
            yield rows, len(range(first + replica, last, replicas)), last - first


def main() -> None:
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    replicas, *names = sys.argv[1:]
    (cpu,) = tf.config.list_physical_devices("CPU")
    devices = [tf.config.LogicalDeviceConfiguration()] * int(replicas)
    tf.config.set_logical_device_configuration(cpu, devices)
    results = {}
    for name in names or CASES:
        _, alone = train(CASES[name], 1)
        notes, together = train(CASES[name], int(replicas))
        pairs = zip(alone, together, strict=True)
        difference = max(float(np.abs(one - other).max(initial=0)) for one, other in pairs)
        results[name] = {"notes": notes, "difference": difference}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
