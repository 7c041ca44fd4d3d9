"""The quick look: `python -m pytest tests` takes the model through a batch of your data.

Run it in the folder of the project. It takes seconds, where a run of the cluster takes longer.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer import Arrays
from trainer import data
from trainer.model import create_model

BATCH = 8


def first_batch(source):
    """Return the first examples of a source as what `evaluate` and `fit` take."""
    if isinstance(source, Arrays):
        given = {"x": source.x, "y": source.y, "sample_weight": source.sample_weight}
        given = {name: array for name, array in given.items() if array is not None}
        return keras.tree.map_structure(lambda array: array[:BATCH], given) | {"verbose": 0}
    files = sorted(tf.io.gfile.glob(source.pattern))
    assert files, f"no file matches {source.pattern}"
    records = tf.data.TFRecordDataset(files)
    if source.parse_batch is not None:
        examples = records.batch(BATCH).map(source.parse_batch)
    else:
        examples = records.map(source.parse).batch(BATCH)
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(next(iter(examples)))
    return {"x": x, "y": y, "sample_weight": sample_weight, "verbose": 0}


@pytest.fixture(scope="module")
def model():
    return create_model()


def test_the_model_is_compiled(model):
    assert model.compiled, "create_model() has to end with model.compile(...)"


def test_the_model_learns_a_batch_of_the_training_data(model):
    batch = first_batch(data.training())
    before = model.evaluate(**batch, return_dict=True)["loss"]
    model.fit(**batch, epochs=20)
    after = model.evaluate(**batch, return_dict=True)["loss"]
    assert after < before, "20 rounds over the same few examples do not lower the loss"


def test_the_model_takes_a_batch_of_the_validation_data(model):
    source = data.validation()
    if source is None:
        pytest.skip("there is no validation data")
    results = model.evaluate(**first_batch(source), return_dict=True)
    assert np.isfinite(list(results.values())).all()
