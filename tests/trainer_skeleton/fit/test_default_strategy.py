"""The strategies that a script makes, in a process of its own: TensorFlow's classes are changed."""

from __future__ import annotations

PROGRAM = """
import keras
import tensorflow as tf
from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.fit.default_strategy import set_strategy

strategy = tf.distribute.MirroredStrategy(["CPU:0"])
set_strategy(strategy, print)
v1 = tf.compat.v1.distribute
made = [
    tf.distribute.MirroredStrategy(),
    tf.distribute.OneDeviceStrategy("/cpu:0"),
    tf.distribute.OneDeviceStrategy("/cpu:0"),
    tf.distribute.MultiWorkerMirroredStrategy(),
    tf.distribute.experimental.CentralStorageStrategy(),
    tf.distribute.experimental.MultiWorkerMirroredStrategy(),
    v1.MirroredStrategy(),
    v1.OneDeviceStrategy("/cpu:0"),
]
print(all(each is strategy for each in made))
for kind in (
    tf.distribute.ParameterServerStrategy,
    tf.distribute.TPUStrategy,
    tf.distribute.experimental.TPUStrategy,
    tf.distribute.Server,
):
    try:
        kind(None)
    except ModelError as error:
        print(str(error).partition(":")[0], "remove the strategy" in str(error))

# Variables of a script, in eager code.
values = tf.Variable(tf.ones((3, 1)))
values[0, 0].assign(3.0)
weight = tf.Variable(2.0, name="weight")
with tf.GradientTape() as tape:
    loss = weight * tf.reduce_sum(values)
keras.optimizers.SGD(0.1).apply_gradients([(tape.gradient(loss, weight), weight)])
print(weight.name, weight.numpy())


class Own(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.count = tf.Variable(0.0)
        self.weight = self.add_weight()


own = Own()
with tf.distribute.get_strategy().scope():
    scoped = tf.Variable(0.0)
summed = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)
distributed = [own.count, own.weight.value, scoped, summed]
print(all(each.distribute_strategy is strategy for each in distributed))
"""


def test_a_script_gets_the_strategy_of_the_cluster_or_is_refused_by_name(run_code):
    result = run_code(PROGRAM)
    replaced = ("OneDevice", "MultiWorkerMirrored", "CentralStorage")
    refused = ("ParameterServerStrategy", "TPUStrategy", "TPUStrategy", "Server")
    assert result.out.splitlines() == [
        *(f"{n}Strategy of the script is MirroredStrategy on this cluster" for n in replaced),
        "True",
        *(f"the script makes a {name} True" for name in refused),
        "weight:0 1.5",
        "True",
    ], result.text
