"""A frozen base, then fine-tuning, as in Keras's guide "Transfer learning & fine-tuning"."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(7)

rng = np.random.default_rng(1)
images = rng.normal(size=(150, 16, 16, 3)).astype("float32")
labels = (images.mean(axis=(1, 2, 3)) > 0).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices((images, labels))
train_ds = dataset.take(110).shuffle(200).batch(20).prefetch(tf.data.AUTOTUNE)
validation_ds = dataset.skip(110).batch(16).cache().prefetch(tf.data.AUTOTUNE)

base_model = keras.Sequential(
    [
        keras.Input(shape=(16, 16, 3)),
        layers.Conv2D(8, 3, activation="elu"),
        layers.BatchNormalization(),
        layers.Conv2D(8, 3, strides=2, activation="elu"),
        layers.BatchNormalization(),
    ],
    name="base",
)
base_model.trainable = False

inputs = keras.Input(shape=(16, 16, 3))
x = layers.RandomFlip("horizontal")(inputs)
x = layers.RandomRotation(0.1)(x)
x = layers.Rescaling(scale=2.0)(x)
x = base_model(x, training=False)
x = layers.GlobalAveragePooling2D()(x)
x = layers.Dropout(0.2)(x)
outputs = layers.Dense(1)(x)
model = keras.Model(inputs, outputs)

model.compile(
    optimizer=keras.optimizers.Adam(1e-2),
    loss=keras.losses.BinaryCrossentropy(from_logits=True),
    metrics=[keras.metrics.BinaryAccuracy()],
)
model.fit(train_ds, epochs=2, validation_data=validation_ds)

base_model.trainable = True
for layer in base_model.layers:
    if isinstance(layer, layers.BatchNormalization):
        layer.trainable = False
model.compile(
    optimizer=keras.optimizers.Adam(1e-4),
    loss=keras.losses.BinaryCrossentropy(from_logits=True),
    metrics=[keras.metrics.BinaryAccuracy()],
)
model.fit(train_ds, epochs=1, validation_data=validation_ds)

for name, value in model.evaluate(validation_ds, return_dict=True).items():
    print(name, value)
model.save("model.keras")
