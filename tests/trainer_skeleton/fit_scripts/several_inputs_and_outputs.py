"""Several inputs and outputs, as in Keras's guide "The functional API"."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(11)

num_tags, num_words, num_departments = 5, 40, 3
title = keras.Input(shape=(None,), name="title")
body = keras.Input(shape=(None,), name="body")
tags = keras.Input(shape=(num_tags,), name="tags")
title_features = layers.Embedding(num_words, 8, mask_zero=True)(title)
body_features = layers.Embedding(num_words, 8)(body)
title_features = layers.LSTM(8)(title_features)
body_features = layers.LSTM(4)(body_features)
x = layers.concatenate([title_features, body_features, tags])
priority_pred = layers.Dense(1, name="priority")(x)
department_pred = layers.Dense(num_departments, name="department")(x)
model = keras.Model(
    inputs=[title, body, tags],
    outputs={"priority": priority_pred, "department": department_pred},
)
model.compile(
    optimizer=keras.optimizers.RMSprop(1e-3, clipnorm=0.5),
    loss={
        "priority": keras.losses.BinaryCrossentropy(from_logits=True),
        "department": keras.losses.CategoricalCrossentropy(from_logits=True),
    },
    loss_weights={"priority": 1.0, "department": 0.2},
    metrics={"department": ["accuracy"]},
)

rng = np.random.default_rng(4)
title_data = rng.integers(num_words, size=(93, 6)).astype("float32")
body_data = rng.integers(num_words, size=(93, 12)).astype("float32")
tags_data = rng.integers(2, size=(93, num_tags)).astype("float32")
priority_targets = rng.random(size=(93, 1)).astype("float32")
department_targets = np.eye(num_departments)[rng.integers(num_departments, size=93)]
data = {"title": title_data, "body": body_data, "tags": tags_data}
targets = {"priority": priority_targets, "department": department_targets.astype("float32")}

model.fit(data, targets, epochs=2, batch_size=32)
model.fit(
    data,
    targets,
    sample_weight={"priority": rng.random(93), "department": rng.random(93)},
    epochs=1,
    batch_size=32,
)
for name, value in model.evaluate(data, targets, return_dict=True).items():
    print(name, value)
predicted = model.predict(data)
print("Shapes:", predicted["priority"].shape, predicted["department"].shape)
print("Priorities:", float(predicted["priority"].sum()))
model.save("model.keras")
