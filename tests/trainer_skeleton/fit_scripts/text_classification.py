"""Text with TextVectorization, as in keras.io's "Text classification from scratch"."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(3)

rng = np.random.default_rng(2)
good, bad = ["fine", "great", "lovely", "superb"], ["dull", "poor", "awful", "tired"]
other = ["the", "film", "plot", "a", "was", "and", "actor", "scene"]
texts, labels = [], []
for number in range(130):
    label = number % 2
    words = [*rng.choice(other, 6), *rng.choice(good if label else bad, 2)]
    texts.append(" ".join(rng.permutation(words)))
    labels.append(label)
dataset = tf.data.Dataset.from_tensor_slices((texts, labels))
raw_train_ds = dataset.take(101).shuffle(101, seed=1).batch(16)
raw_test_ds = dataset.skip(101).batch(16)

vectorize_layer = layers.TextVectorization(
    max_tokens=50, output_mode="int", output_sequence_length=10
)
vectorize_layer.adapt(raw_train_ds.map(lambda text, label: text))


def vectorize_text(text, label):
    return vectorize_layer(tf.expand_dims(text, -1)), label


train_ds = raw_train_ds.map(vectorize_text).cache().prefetch(buffer_size=10)
test_ds = raw_test_ds.map(vectorize_text).cache().prefetch(buffer_size=10)

inputs = keras.Input(shape=(None,), dtype="int64")
x = layers.Embedding(50, 8)(inputs)
x = layers.Dropout(0.5)(x)
x = layers.Conv1D(8, 3, padding="same", activation="tanh")(x)
x = layers.GlobalAveragePooling1D()(x)
x = layers.Dropout(0.5)(x)
predictions = layers.Dense(1, activation="sigmoid", name="predictions")(x)
model = keras.Model(inputs, predictions)
model.compile(loss="binary_crossentropy", optimizer="adam", metrics=["accuracy"])
model.fit(train_ds, validation_data=test_ds, epochs=3)

loss, accuracy = model.evaluate(test_ds)
print("Test loss:", loss)
print("Test accuracy:", accuracy)

end_to_end = keras.Sequential([keras.Input((1,), dtype="string"), vectorize_layer, model])
end_to_end.compile(loss="binary_crossentropy", optimizer="adam", metrics=["accuracy"])
print("From text:", end_to_end.evaluate(raw_test_ds)[0])
model.save("model.keras")
