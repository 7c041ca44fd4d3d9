"""Variables that Keras does not track are found, saved once for all replicas, and restored."""

import json

PROGRAM = """
import json, keras, tensorflow as tf
from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.model.other_variables import OtherVariables

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
Aggregation = tf.VariableAggregation


class Counts(keras.layers.Layer):
    def __init__(self):
        super().__init__(name="counts")
        self.steps = tf.Variable(0.0)

    def call(self, x):
        return x


def make():
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1), Counts()])
        of_each = {"synchronization": tf.VariableSynchronization.ON_READ, "trainable": False}
        summed = tf.Variable(0, name="summed", aggregation=Aggregation.SUM, **of_each)
        mean = tf.Variable(0.0, name="mean", aggregation=Aggregation.MEAN, **of_each)
        read, text = tf.Variable(3.0, name="read"), tf.Variable("", name="text")
    model.layers[-1].limit = tf.Variable(1.0)  # of no strategy, and only read

    @tf.function
    def step(repeats):
        def replica():
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            model.layers[-1].steps.assign_add(read)
            model.layers[0].bias.assign(model.layers[0].bias.value)
            summed.assign_add(1 + 2 * number)
            mean.assign_add(tf.cast(number, tf.float32))
            text.assign("a")
        for _ in tf.range(repeats):
            strategy.run(replica)

    others = OtherVariables(model, Cluster(Role(), strategy), model.variables)
    before = sorted(others.names)
    unsaved = others.add_written(step.get_concrete_function(tf.constant(2)).graph)
    return others, step, (before, sorted(others.names), unsaved)


others, step, names = make()
step(tf.constant(2))
first = others.values()
restored, step, _ = make()
left = restored.assign({**first, "gone": first["mean"]})
as_restored = restored.values()
step(tf.constant(1))
plain = lambda values: {name: value.tolist() for name, value in values.items()}
alone = tf.Variable(0.0, name="alone")
graph = tf.function(lambda: alone.assign_add(1.0)).get_concrete_function().graph
try:
    others.add_written(graph)
except ModelError as error:
    print(str(error).partition(",")[0])
print(json.dumps([names, plain(first), plain(as_restored), sorted(left), plain(restored.values())]))
"""


def test_variables_of_layers_and_of_a_step_are_saved_and_restored(run_code):
    result = run_code(PROGRAM)
    assert result.code == 0, result.text
    refusal, printed = result.out.splitlines()[-2:]
    assert refusal == "a step assigns the variable alone:0"
    (before, names, unsaved), first, restored, left, later = json.loads(printed)
    assert before == ["counts/limit", "counts/steps"]
    assert names == ["counts/limit", "counts/steps", "mean", "summed"]
    assert unsaved == ["text"]
    assert first == {"counts/limit": 1.0, "counts/steps": 6.0, "mean": 1.0, "summed": 8}
    assert restored == first
    assert left == ["gone"]
    assert later == {"counts/limit": 1.0, "counts/steps": 9.0, "mean": 1.5, "summed": 12}
