"""Warnings about layers, and which batch normalisations see all rows."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf

from distlaunch_trainer.keras_compat import written_variables
from distlaunch_trainer.step.model_replicas import ModelReplicas
from distlaunch_trainer.step.normalization import BatchNormalizations, replica_count_warnings
from distlaunch_trainer.step.step_context import StepRows

layers = keras.layers


def model(*hidden):
    model = keras.Sequential([layers.Input((4, 3)), *hidden, layers.Flatten(), layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def test_layers_are_named():
    several = model(
        layers.Dropout(0.5, name="drop"),
        layers.BatchNormalization(name="norm"),
        layers.BatchNormalization(synchronized=True, name="common"),
        keras.Sequential([layers.GaussianNoise(0.1, name="noise")]),
    )
    random, apart = replica_count_warnings(several, 2, synchronized=False)
    assert random.startswith("the layers drop, noise draw random numbers")
    assert random.endswith("--same-random draws those of one worker")
    assert apart.startswith("the layers norm normalize by the rows of one replica")
    assert apart.endswith("--sync-batch-norm uses all rows")
    assert replica_count_warnings(several, 2, synchronized=True) == [random]
    assert replica_count_warnings(several, 1, synchronized=False) == []


@pytest.mark.parametrize(
    ("create_layer", "draws"),
    [
        (lambda: layers.Dropout(0.0), False),
        (lambda: layers.LSTM(2, return_sequences=True), False),
        (lambda: layers.LSTM(2, return_sequences=True, recurrent_dropout=0.1), True),
        (lambda: layers.MultiHeadAttention(1, 2, dropout=0.1), True),
    ],
)
def test_layers_that_draw_random_numbers(create_layer, draws):
    x, layer = layers.Input((4, 3)), create_layer()
    y = layer(x, x) if isinstance(layer, layers.MultiHeadAttention) else layer(x)
    assert bool(replica_count_warnings(keras.Model(x, y), 2, synchronized=False)) == draws


def test_frozen_weights_are_no_statistics():
    """They may be many, and are neither copied nor sent."""
    frozen = keras.Sequential([layers.Dense(3), layers.BatchNormalization()])
    frozen.trainable = False
    trained = layers.BatchNormalization()
    both = model(frozen, trained)
    expected = [trained.moving_mean.path, trained.moving_variance.path]
    rows = StepRows(tf.constant(0), tf.constant(1), 2, may_be_empty=True)
    replicas = ModelReplicas(both, tf.distribute.get_strategy())

    @tf.function(autograph=False)
    def step():
        with replicas.unchanged_without_rows(rows):
            pass

    restored = written_variables(step.get_concrete_function().graph)
    metrics = [v.path for metric in both.metrics for v in metric.variables]
    assert {v.name.partition(":")[0] for v in restored} == {*expected, *metrics}
    assert [v.path for v in BatchNormalizations(both, 2).moving_statistics] == expected
    together = BatchNormalizations(both, 2, synchronize=True)
    assert together.moving_statistics == []
    assert together.synchronized == [trained]
