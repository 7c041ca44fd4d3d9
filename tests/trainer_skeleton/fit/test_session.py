"""What a script's session warns of, and saves."""

from types import SimpleNamespace

import keras
import pytest

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
