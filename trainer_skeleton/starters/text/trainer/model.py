"""The model: text in, a score of each class out. Change it as you like."""

import keras

from trainer import data
from trainer.vocabulary import LENGTH, MOST_WORDS, read_vocabulary, vectorization

WIDTH, HEADS = 32, 4


def create_model() -> keras.Model:
    """Return a compiled model; it is trained as compiled, on one worker or on many."""
    text = keras.Input((1,), dtype="string", name="text")
    words = vectorization(read_vocabulary())(text)
    # 0 fills sentences up to their length: it is masked, so no word attends to it.
    hidden = keras.layers.Embedding(MOST_WORDS, WIDTH, mask_zero=True)(words)
    positions = keras.ops.cumsum(keras.ops.ones_like(words), axis=1) - 1
    hidden = keras.layers.Add()([hidden, keras.layers.Embedding(LENGTH, WIDTH)(positions)])
    hidden = transformer_block(hidden)
    hidden = keras.layers.GlobalMaxPooling1D()(hidden)
    model = keras.Model({"text": text}, keras.layers.Dense(len(data.CLASSES))(hidden))
    model.compile(
        optimizer=keras.optimizers.Adam(4e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def transformer_block(x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the words of each sentence, each with what it attends to in the others."""
    attended = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(x, x)
    x = keras.layers.LayerNormalization()(keras.layers.Add()([x, attended]))
    hidden = keras.layers.Dense(2 * WIDTH, activation="relu")(x)
    hidden = keras.layers.Dense(WIDTH)(hidden)
    return keras.layers.LayerNormalization()(keras.layers.Add()([x, hidden]))


def callbacks() -> list[keras.callbacks.Callback]:
    """Return Keras callbacks; they run on every worker, with the same logs on all."""
    return []
