"""Check a trained model: plain Keras loads it, and predicts what the SavedModel does.

Run in a project's folder with the folder of the model, and the shape of an input if the project is
a script. IMPORT names a module with classes that the model needs.
"""

from __future__ import annotations

import importlib
import os
import sys

import keras
import numpy as np
import tensorflow as tf

folder, *shape = sys.argv[1:]
assert not {"distlaunch_trainer", "trainer"} & sys.modules.keys()
if "IMPORT" in os.environ:
    importlib.import_module(os.environ["IMPORT"])
model = keras.models.load_model(f"{folder}/model.keras")
assert "distlaunch_trainer" not in sys.modules

if shape:
    x = np.random.default_rng(0).normal(size=[int(size) for size in shape]).astype("float32")
else:
    from distlaunch_trainer import first_batch
    from trainer import data

    (batch,) = first_batch(getattr(data, "validation", data.training))
    x = batch[0] if isinstance(batch, tuple) else batch

expected = keras.tree.flatten(model.predict(tf.data.Dataset.from_tensors(x), verbose=0))
saved_model = tf.saved_model.load(folder)
served = keras.tree.flatten(saved_model.serve(x))
assert expected
for one, other in zip(expected, served, strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
