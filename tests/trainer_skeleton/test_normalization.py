"""Which layers are told of, and which batch normalisations see all rows."""

from __future__ import annotations

import keras
import pytest

from trainer.distributed import step
from trainer.distributed.normalization import BatchNormalizations, differences

layers = keras.layers


def model(*hidden):
    made = keras.Sequential([layers.Input((4, 3)), *hidden, layers.Flatten(), layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def test_one_replica_has_nothing_to_tell():
    made = model(layers.Dropout(0.5), layers.BatchNormalization())
    assert differences(made, 1, synchronized=False) == []


def test_layers_are_named():
    made = model(
        layers.Dropout(0.5, name="drop"),
        layers.BatchNormalization(name="norm"),
        layers.BatchNormalization(synchronized=True, name="common"),
        keras.Sequential([layers.GaussianNoise(0.1, name="noise")]),
    )
    random, apart = differences(made, 2, synchronized=False)
    assert random.startswith("the layers drop, noise draw random numbers")
    assert apart.startswith("the layers norm normalise each replica's rows by themselves")
    assert apart.endswith("--sync-batch-norm has them see all rows")
    assert differences(made, 2, synchronized=True) == [random]


@pytest.mark.parametrize(
    ("layer", "draws"),
    [
        (lambda: layers.Dropout(0.0), False),
        (lambda: layers.LSTM(2, return_sequences=True), False),
        (lambda: layers.LSTM(2, return_sequences=True, recurrent_dropout=0.1), True),
        (lambda: layers.MultiHeadAttention(1, 2, dropout=0.1), True),
        (lambda: layers.Dense(2), False),
    ],
)
def test_only_what_draws_is_told(layer, draws):
    x = layers.Input((4, 3))
    made = layer()
    y = made(x, x) if isinstance(made, layers.MultiHeadAttention) else made(x)
    assert bool(differences(keras.Model(x, y), 2, synchronized=False)) == draws


def test_frozen_weights_are_no_statistics():
    """They may be many, and are neither copied nor sent."""
    frozen = keras.Sequential([layers.Dense(3), layers.BatchNormalization()])
    frozen.trainable = False
    trained = layers.BatchNormalization()
    made = model(frozen, trained)
    expected = [trained.moving_mean, trained.moving_variance]
    assert [v.path for v in step._statistics(made)] == [v.path for v in expected]
    apart = BatchNormalizations(made, 2)
    assert [v.path for v in apart.averages] == [v.path for v in expected]
    together = BatchNormalizations(made, 2, synchronize=True)
    assert together.averages == []
    assert together.synchronized == [trained]
