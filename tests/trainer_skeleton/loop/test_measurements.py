"""What is measured of the steps besides their time."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf

from distlaunch_trainer.loop.measurements import GradientNorm
from distlaunch_trainer.run_facts import gradient_bytes
from distlaunch_trainer.step.step_timing import input_hint


def compiled(optimizer, *layers):
    model = keras.Sequential([keras.layers.Input((2,)), *layers, keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def test_the_norm_of_accumulated_gradients_is_that_of_their_mean():
    model = compiled(keras.optimizers.SGD(1.0, gradient_accumulation_steps=2))
    norm = GradientNorm(model)
    values = []
    for factor in (0.0, 2.0):
        gradients = [tf.constant([[3.0 * factor], [0.0]]), tf.constant([4.0 * factor])]
        model.optimizer.apply(gradients, model.trainable_variables)
        values.append(norm.value())
    assert values == [None, pytest.approx(5.0)]


@pytest.mark.parametrize("is_scaled", [False, True])
def test_the_norm_is_that_of_gradients_before_clipping(is_scaled):
    optimizer = keras.optimizers.SGD(1.0, global_clipnorm=1.0)
    if is_scaled:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=4.0)
    model = compiled(optimizer)
    norm = GradientNorm(model)
    assert norm.value() is None
    before = [variable.numpy() for variable in model.trainable_variables]
    factor = 4.0 if is_scaled else 1.0
    gradients = [tf.constant([[3.0 * factor], [0.0]]), tf.constant([4.0 * factor])]
    apply = lambda *gradients: model.optimizer.apply(gradients, model.trainable_variables)  # noqa: E731
    tf.function(apply)(*gradients)
    assert norm.value() == pytest.approx(5.0)
    kernel, bias = (b - v.numpy() for b, v in zip(before, model.trainable_variables, strict=True))
    assert kernel.ravel() == pytest.approx([0.6, 0.0])  # clipped, and applied
    assert bias == pytest.approx([0.8])


def test_the_bytes_of_gradients_are_unknown_with_embeddings():
    assert gradient_bytes(compiled("sgd")) == 12
    embedding = keras.layers.Embedding(5, 3)
    rows = compiled("sgd", embedding, keras.layers.Flatten())
    assert gradient_bytes(rows) is None
    embedding.trainable = False
    assert gradient_bytes(rows) == 4 * (6 + 1)


@pytest.mark.parametrize(
    ("share", "steps", "degree"),
    [(0.049, 1000, None), (0.05, 1000, "moderately"), (0.2, 1000, "highly"), (0.2, 4, None)],
)
def test_only_a_run_that_waits_for_input_has_a_hint(share, steps, degree):
    hint = input_hint({"steps": steps, "total": 1.0, "input": share}, ["cache"])
    assert (hint is None) == (degree is None)
    assert degree is None or f"{degree} input-bound" in hint
    assert degree is None or hint.endswith("try --cache")
    assert input_hint(None, None) is None
