"""Keras's generator of unseeded numbers; what replicas draw is in step/test_random_draws.py."""

from __future__ import annotations

import random

import keras
import tensorflow as tf

from distlaunch_trainer.keras_compat import keras_random


def test_making_the_generator_leaves_the_numbers_of_python_as_they_are():
    """In a script they may be the order of the rows."""
    random.seed(3)
    expected = random.getstate()
    random.seed(3)
    keras_random.global_generator()
    assert random.getstate() == expected


def test_the_first_unseeded_numbers_are_those_of_keras():
    """A generator for replicas, which cannot make one, has been made before."""

    def drawn():
        keras.utils.set_random_seed(5)
        yield
        yield keras.random.normal([3]).numpy().tolist(), random.getstate()

    alone, after = drawn(), drawn()
    next(alone)
    expected = next(alone)
    next(after)
    keras_random.global_generator()
    assert next(after) == expected


def test_operations_that_draw_other_numbers_each_time_are_known():
    drawing = "RandomUniform", "StatefulUniform", "RngReadAndSkip", "LogUniformCandidateSampler"
    others = "StatefulPartitionedCall", "StatelessRandomUniformV2", "StatelessMultinomial"
    assert all(map(keras_random.is_random, drawing))
    assert not any(map(keras_random.is_random, others))


def test_functions_of_tensorflow_1_draw_nothing():
    """The CTC loss has one, which is no graph of operations."""

    @tf.function
    def loss(labels, logits):
        lengths = tf.constant([2]), tf.constant([4])
        return tf.nn.ctc_loss(labels, logits, *lengths, logits_time_major=False)

    spec = tf.TensorSpec((1, 2), tf.int32), tf.TensorSpec((1, 4, 3))
    assert list(keras_random.draws_in(loss.get_concrete_function(*spec).graph)) == []
