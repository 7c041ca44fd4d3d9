"""Data from generators: tf.data.Dataset.from_generator, a PyDataset, and a generator function."""

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(9)

rng = np.random.default_rng(9)
x = rng.normal(size=(77, 4)).astype("float32")
y = np.sin(x.sum(axis=1, keepdims=True)).astype("float32")


def rows():
    yield from zip(x, y, strict=True)


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return x[index * 10 : index * 10 + 10], y[index * 10 : index * 10 + 10]


def endless_batches():
    while True:
        yield from ((x[start : start + 7], y[start : start + 7]) for start in range(0, 77, 7))


signature = (tf.TensorSpec((4,), tf.float32), tf.TensorSpec((1,), tf.float32))
dataset = tf.data.Dataset.from_generator(rows, output_signature=signature).batch(8)

model = keras.Sequential([keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.SGD(1e-2, momentum=0.9), loss="mse", metrics=["mae"])
model.fit(dataset, epochs=2)
model.fit(Batches(), epochs=1)
model.fit(endless_batches(), steps_per_epoch=11, epochs=2)
loss, mae = model.evaluate(dataset)
print("Loss:", loss)
print("Error:", mae)
model.save("model.keras")
