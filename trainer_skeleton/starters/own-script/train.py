"""Train a convolutional network with Keras's fit(): `python train.py --epochs 2`.

Nothing here is about clusters. `distlaunch local` and `distlaunch submit` run the same script on
all workers; batch_size is that of the whole cluster.
"""

import argparse

import keras
import numpy as np
from keras import layers

CLASSES = 4

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--examples", type=int, default=2000)
options = parser.parse_args()

# The data: noise with a bright stripe, whose position is the class. Replace it with your own.
random = np.random.default_rng(0)
y = random.integers(CLASSES, size=options.examples)
x = random.normal(scale=0.5, size=(options.examples, 12, 12, 1)).astype("float32")
for label in range(CLASSES):
    x[y == label, 3 * label : 3 * label + 2] += 1.0

model = keras.Sequential(
    [
        keras.Input(shape=(12, 12, 1)),
        layers.Conv2D(16, kernel_size=3, activation="relu"),
        layers.MaxPooling2D(pool_size=2),
        layers.Flatten(),
        layers.Dense(CLASSES, activation="softmax"),
    ]
)
model.summary()
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(x, y, batch_size=64, epochs=options.epochs, validation_split=0.1)
