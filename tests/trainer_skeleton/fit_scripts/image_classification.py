"""A convolutional network on images in memory, as in keras.io's "Simple MNIST convnet"."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(42)

num_classes = 4
rng = np.random.default_rng(0)
y = rng.integers(num_classes, size=203)
x = rng.normal(scale=0.3, size=(203, 12, 12, 1))
for label in range(num_classes):
    x[y == label, 3 * label : 3 * label + 3] += 1.0
x = x.astype("float32")
x_train, y_train = x[:171], keras.utils.to_categorical(y[:171], num_classes)
x_test, y_test = x[171:], keras.utils.to_categorical(y[171:], num_classes)

model = keras.Sequential(
    [
        keras.Input(shape=(12, 12, 1)),
        layers.Conv2D(8, kernel_size=(3, 3), activation="relu"),
        layers.MaxPooling2D(pool_size=(2, 2)),
        layers.Flatten(),
        layers.Dropout(0.5),
        layers.Dense(num_classes, activation="softmax"),
    ]
)
model.summary()
model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
model.fit(x_train, y_train, batch_size=32, epochs=3, validation_split=0.1)

score = model.evaluate(x_test, y_test, verbose=0)
print("Test loss:", score[0])
print("Test accuracy:", score[1])
print("Sum of predictions:", float(np.square(model.predict(x_test)).sum()))
model.save("model.keras")
