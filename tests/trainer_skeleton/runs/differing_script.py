"""A script of `fit` whose tasks differ in several ways; it prints what becomes of each."""

import json
import os

import keras
import numpy as np
import tensorflow as tf

task = json.loads(os.environ["TF_CONFIG"])["task"]
rank = int(task["type"] == "worker")
x = np.arange(40, dtype="float32")[:, None] / 40
y = (np.arange(40) % 2)[:, None].astype("float32")


def new_model():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(keras.optimizers.SGD(0.5), "mse")
    return model


def show(name, function):
    try:
        result = function()
    except Exception as error:  # noqa: BLE001
        result = f"{type(error).__name__}: {error}"
    print(f"{name}: {result}")


def weights(data):
    model = new_model()
    model.fit(data)
    return float(np.sum(model.get_weights()[0]))


def without_sharding(data):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return data.with_options(options)


def rows(start, stop):
    return tf.data.Dataset.from_tensor_slices((x[start:stop], y[start:stop]))


def generated():
    for n in range(40):
        yield x[n], y[n - rank]


def own(batch):
    return without_sharding(rows(0, 25).shard(2, rank)).batch(batch)


model = new_model()
order = np.random.default_rng().permutation(40)
show("Unseeded", lambda: model.fit(x[order], y[order]))
signature = tf.TensorSpec((1,)), tf.TensorSpec((1,))
labels = tf.data.Dataset.from_generator(generated, output_signature=signature).batch(10)
show("Targets", lambda: model.fit(labels))
noise = rows(0, 40).map(lambda x, y: (x + tf.random.uniform([], seed=rank), y)).batch(10)
show("Noise", lambda: len(model.fit(noise).epoch))
show("Sharded", lambda: model.fit(rows(0, 40).shard(2, rank).batch(10)))
show("Length", lambda: model.fit(rows(0, 40 - 20 * rank).batch(10)))

# 13 and 12 rows: batches of 4, 4, 4, 1 on one task and of 4, 4, 4 on the other.
show("Own rows", lambda: weights(own(4)))
show("Rows", lambda: weights(rows(0, 24).batch(8).concatenate(rows(24, 25).batch(8))))
show("Own predictions", lambda: model.predict(own(4)).shape)

show("Alone", lambda: model.evaluate(x, y) if rank else model.fit(x, y))
show("On batch", lambda: None if rank else model.predict(x, batch_size=10).shape)
show("Own batch", lambda: model.train_on_batch(x[rank::2], y[rank::2]))


class Rate(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.model.optimizer.learning_rate = 0.5 + rank


show("Type", lambda: keras.ops.convert_to_numpy(keras.Variable([1.5 + rank], dtype="bfloat16")))
show("Rate", lambda: new_model().fit(x, y, callbacks=[Rate()]))
show("Other models", lambda: keras.models.load_model("saved.keras") if rank else new_model())
