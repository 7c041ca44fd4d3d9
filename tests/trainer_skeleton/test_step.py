"""What one step is made of, and models whose steps this trainer does not take."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf

from trainer.distributed import step
from trainer.distributed.errors import ModelError


class OwnStep(keras.Model):
    def train_step(self, data):
        return {}


class OwnTest(keras.Model):
    def test_step(self, data):
        return {}


@pytest.mark.parametrize("kind", [OwnStep, OwnTest])
def test_a_step_of_the_models_own_is_refused(kind):
    with pytest.raises(ModelError, match=r"_step\(\) of trainer/model.py would not be called"):
        step._check_can_train(kind())
    step._check_can_train(keras.Model())


def test_sums_of_several_types():
    values = [tf.constant(1.0), tf.constant(2, tf.int64), tf.constant(3.0, tf.float64)]
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    sums = strategy.run(tf.function(lambda: step._sum_over_replicas(values)))
    assert [each.dtype for each in sums] == [value.dtype for value in values]
    assert [float(each) for each in sums] == [1.0, 2.0, 3.0]
