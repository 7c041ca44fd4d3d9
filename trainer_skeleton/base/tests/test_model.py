"""The quick look: `python -m pytest tests` takes the model through a batch of your data.

Run it in the folder of the project. It takes seconds, where a run of the cluster takes longer.
"""

import numpy as np
import pytest

from distlaunch_trainer import first_batch
from trainer import data
from trainer.model import create_model


@pytest.fixture(scope="module")
def model():
    return create_model()


def test_the_model_is_compiled(model):
    assert model.compiled, "create_model() has to end with model.compile(...)"


def test_the_model_learns_a_batch_of_the_training_data(model):
    batch = first_batch(data.training)
    before = model.evaluate(batch, return_dict=True, verbose=0)["loss"]
    model.fit(batch, epochs=20, shuffle=False, verbose=0)
    after = model.evaluate(batch, return_dict=True, verbose=0)["loss"]
    assert after < before, "20 rounds over the same few examples do not lower the loss"


def test_the_model_takes_a_batch_of_the_validation_data(model):
    if data.validation() is None:
        pytest.skip("there is no validation data")
    results = model.evaluate(first_batch(data.validation), return_dict=True, verbose=0)
    assert np.isfinite(list(results.values())).all()
