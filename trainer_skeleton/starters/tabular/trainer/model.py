"""The model: an input for each column, preprocessed by layers that are saved with the model."""

import keras

from .data import NUMBERS, SPECIES, TEXTS, training


def create_model() -> keras.Model:
    """Return a compiled model; it is trained as compiled, on one worker or on many."""
    # All rows, the same on every worker: so the adapted layers are the same too.
    columns = training().load().x
    inputs, features = {}, []
    for name in NUMBERS:
        inputs[name] = keras.layers.Input((1,), name=name)
        normalization = keras.layers.Normalization(axis=None, name=f"normalized_{name}")
        normalization.adapt(columns[name])
        features.append(normalization(inputs[name]))
    for name in TEXTS:
        inputs[name] = keras.layers.Input((1,), dtype="string", name=name)
        lookup = keras.layers.StringLookup(output_mode="one_hot", name=f"one_hot_{name}")
        lookup.adapt(columns[name].astype(str))
        features.append(lookup(inputs[name]))
    hidden = keras.layers.Concatenate()(features)
    hidden = keras.layers.Dense(32, activation="relu")(hidden)
    outputs = keras.layers.Dense(len(SPECIES))(hidden)
    model = keras.Model(inputs, outputs)
    model.compile(
        optimizer=keras.optimizers.Adam(5e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def callbacks() -> list[keras.callbacks.Callback]:
    """Return Keras callbacks; they run on every worker, with the same logs on all."""
    return []
