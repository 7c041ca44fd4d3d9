"""What is measured of the steps besides their time."""

from __future__ import annotations

import keras
import pytest

from distlaunch_trainer.run_facts import gradient_bytes
from distlaunch_trainer.step.step_timing import input_hint


def compiled(optimizer, *layers):
    model = keras.Sequential([keras.layers.Input((2,)), *layers, keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    model.optimizer.build(model.trainable_variables)
    return model


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
