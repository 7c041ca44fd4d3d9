"""Several steps per execution, last batches of one row for two workers, and shards of its own.

A layer adds a loss that is a sum over the rows, and a metric returns its variable.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(13)


class SumOfSquares(layers.Layer):
    def call(self, x):
        self.add_loss(1e-3 * keras.ops.sum(x**2))
        return x


class Rows(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="rows")
        self.rows = self.add_variable(shape=(), initializer="zeros", name="rows")

    def update_state(self, y, predicted, sample_weight=None):
        self.rows.assign_add(keras.ops.cast(keras.ops.shape(y)[0], "float32"))

    def result(self):
        return self.rows


rng = np.random.default_rng(13)
x = rng.normal(size=(121, 5)).astype("float32")
y = (x.sum(axis=1) > 0).astype("float32")
model = keras.Sequential(
    [
        keras.Input((5,)),
        layers.Dense(8, activation="tanh", kernel_regularizer="l2"),
        SumOfSquares(),
        layers.BatchNormalization(synchronized=True),
        layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(
    optimizer=keras.optimizers.AdamW(1e-2, clipnorm=0.5),
    loss="binary_crossentropy",
    metrics=["accuracy", keras.metrics.AUC(), Rows()],
    steps_per_execution=4,
)
model.fit(x, y, batch_size=12, epochs=3, class_weight={0: 1.0, 1: 2.0}, shuffle=False)


def shard(context):
    data = tf.data.Dataset.from_tensor_slices((x, y))
    data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
    return data.batch(context.get_per_replica_batch_size(12))


model.fit(tf.distribute.get_strategy().distribute_datasets_from_function(shard), epochs=2)
for name, value in model.evaluate(x, y, batch_size=24, return_dict=True).items():
    print(name, value)
print("Predictions:", float(model.predict(x, batch_size=30).sum()))
model.save("model.keras")

ended = []
hook = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: ended.append(batch))
of_unknown_length = tf.data.Dataset.from_tensor_slices((x, y)).filter(lambda *_: True).batch(12)
model.fit(of_unknown_length, epochs=2, callbacks=[hook])
print("Ends of batches:", len(ended))
print("Their numbers:", sum(ended))
