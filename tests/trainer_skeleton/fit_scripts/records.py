"""TFRecord files, as in keras.io's "How to train a Keras model on TFRecord files"."""

import pathlib

import keras
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(8)

root = pathlib.Path(__file__).resolve().parents[3]
folder = root / "trainer_skeleton" / "starters" / "digits" / "data"
train_files = sorted(str(path) for path in folder.glob("train-*.tfrecord"))
test_files = sorted(str(path) for path in folder.glob("validation-*.tfrecord"))


def parse(record):
    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }
    example = tf.io.parse_single_example(record, features)
    image = tf.reshape(tf.io.decode_raw(example["image"], tf.uint8), (8, 8, 1))
    return tf.cast(image, tf.float32) / 16.0, example["label"]


def get_dataset(files, batch_size):
    dataset = tf.data.TFRecordDataset(files, num_parallel_reads=tf.data.AUTOTUNE)
    dataset = dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.shuffle(256, seed=8).batch(batch_size).prefetch(tf.data.AUTOTUNE)


train_dataset = get_dataset(train_files, 50)
test_dataset = get_dataset(test_files, 50)

inputs = keras.Input((8, 8, 1))
x = layers.SeparableConv2D(8, 3, activation="swish")(inputs)
x = layers.GlobalAveragePooling2D()(x)
outputs = layers.Dense(10, activation="softmax")(x)
model = keras.Model(inputs, outputs)
model.compile(
    optimizer=keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(3, name="top_3")],
)
model.fit(train_dataset, epochs=1, validation_data=test_dataset)
for name, value in model.evaluate(test_dataset, return_dict=True).items():
    print(name, value)
model.save("model.keras")
