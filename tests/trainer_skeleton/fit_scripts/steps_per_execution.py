"""Several steps per execution, and batches of which the last has one row for two workers."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(13)

rng = np.random.default_rng(13)
x = rng.normal(size=(121, 5)).astype("float32")
y = (x.sum(axis=1) > 0).astype("float32")
model = keras.Sequential(
    [
        keras.Input((5,)),
        layers.Dense(8, activation="tanh", kernel_regularizer="l2"),
        layers.BatchNormalization(synchronized=True),
        layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(
    optimizer=keras.optimizers.AdamW(1e-2, clipnorm=0.5),
    loss="binary_crossentropy",
    metrics=["accuracy", keras.metrics.AUC()],
    steps_per_execution=4,
)
model.fit(x, y, batch_size=12, epochs=3, class_weight={0: 1.0, 1: 2.0}, shuffle=False)
for name, value in model.evaluate(x, y, batch_size=24, return_dict=True).items():
    print(name, value)
print("Predictions:", float(model.predict(x, batch_size=30).sum()))
model.save("model.keras")
