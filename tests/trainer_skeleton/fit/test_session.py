"""What a script's session warns of, and saves."""

import inspect
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.fit.script_models import ScriptModels
from distlaunch_trainer.fit.session import Session
from distlaunch_trainer.options import Settings


class Unbuilt(keras.Model):
    def call(self, x):
        return x


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def session(cluster, warnings):
    report = SimpleNamespace(warn=warnings.append)
    return Session(cluster, report, None, "checkpoints", Settings())


def test_a_model_that_keras_cannot_save_is_a_warning(session, warnings, tmp_path):
    session.model = Unbuilt()
    assert session.save_model(str(tmp_path / "model")) == []
    (warning,) = warnings
    assert warning.startswith("the model cannot be saved: model.keras was not written")


def test_fit_refuses_weights_that_are_nan_unless_it_has_trained_them(session):
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.layers[0].bias.assign([float("nan")])
    call = inspect.signature(type(model).fit).bind(model, np.ones((1, 2)), np.ones(1))
    call.apply_defaults()
    with pytest.raises(ModelError, match=r"dense\w*/bias is NaN or infinite before the training"):
        session._fit(None, call)
    session.model = model
    with pytest.raises(AttributeError, match="defer"):
        session._fit(None, call)


def test_layers_that_depend_on_the_number_of_replicas_are_named_once(session, warnings):
    layers = keras.layers
    hidden = layers.BatchNormalization(name="norm"), layers.Dropout(0.5, name="drop")
    model = keras.Sequential([layers.Input((2,)), *hidden])
    session.models.warn_of_layers(model)
    assert warnings == []  # one replica
    report = SimpleNamespace(warn=warnings.append)
    models = ScriptModels(SimpleNamespace(replicas=2), report, sync_batch_norm=False)
    for _ in range(2):
        models.warn_of_layers(model)
    random, apart = warnings
    assert random.startswith("the layers drop draw random numbers")
    assert apart.startswith("the layers norm normalize by the rows of one replica")
    assert apart.endswith("--sync-batch-norm uses all rows")
