"""A model that Keras writes and cannot load is known before it is trained."""

from __future__ import annotations

import random

import keras
import numpy as np
import pytest

from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.saving.model_files import save_model
from distlaunch_trainer.saving.model_loading import import_note, saving_problem

# Keras's own, as it writes a SavedModel.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


class NeedsUnits(keras.layers.Layer):
    def __init__(self, units, **options):
        super().__init__(**options)
        self.units = units

    def get_config(self):
        return super().get_config()

    def call(self, x):
        return x


class Refusing(keras.layers.Layer):
    def get_config(self):
        raise NotImplementedError


class Scale(keras.layers.Layer):
    def call(self, x):
        return 2 * x


@keras.saving.register_keras_serializable()
class Registered(Scale):
    pass


@keras.saving.register_keras_serializable()
def double(x):
    return 2 * x


class Miscounts(Scale):
    """Saves a weight that a loaded layer has not."""

    def save_own_variables(self, store):
        store["0"] = np.ones(2)


def model_of(*layers):
    model = keras.Sequential([keras.layers.Input((4,)), *layers])
    model.compile("adam", "mse")
    return model


def around(value):
    """Return a lambda that Keras would have to save with the value."""
    return lambda *x: value and x[0]


def vocabulary_of(*words):
    layer = keras.layers.StringLookup(name="words")
    layer.adapt(np.array(words))
    text = keras.Input((1,), dtype="string")
    return keras.Model(text, keras.layers.Embedding(9, 2)(layer(text)))


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (
            lambda: model_of(NeedsUnits(3, name="mine")),
            "the layer mine (NeedsUnits): ",
        ),
        (
            lambda: model_of(keras.layers.Lambda(lambda x: 2 * x, name="mine")),
            "the layer mine (Lambda): Keras loads no Python lambda: use a function with a name",
        ),
        (
            lambda: vocabulary_of("a", "a", "b", ""),
            "the layer words (StringLookup): Keras loads another vocabulary than it saves",
        ),
    ],
)
def test_a_layer_that_keras_cannot_load_is_named_and_the_weights_are_kept(
    make, problem, tmp_path, capsys
):
    model = make()
    assert saving_problem(model).startswith(problem)
    written = save_model(model, str(tmp_path), Report(Role(), "logs"))
    assert written == ["model.weights.h5", "saved_model.pb"]
    error, warning = capsys.readouterr().err.splitlines()
    assert f"trainer: error: model.keras cannot be loaded, and is left out: {problem}" in error
    assert warning.endswith("written: model.weights.h5, saved_model.pb")


def test_the_layer_at_fault_is_named_not_the_model_around_it():
    problem = saving_problem(model_of(keras.Sequential([Refusing(name="inner")])))
    assert problem.startswith("the layer inner (Refusing): NotImplementedError: add get_config()")
    loss = around(object())
    for model in (model_of(keras.layers.Dense(3)), model_of(Registered())):
        model.compile("sgd", loss)
        problem = saving_problem(model)
        assert problem.startswith("the arguments of compile(): TypeError: Cannot serialize object")


def test_what_only_the_file_shows_is_an_error_too(tmp_path, capsys):
    model = model_of(Miscounts(), keras.layers.Dense(2))
    assert saving_problem(model) is None
    assert save_model(model, str(tmp_path), Report(Role(), "logs"))[0] == "model.weights.h5"
    assert "model.keras cannot be loaded, and is left out: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "make",
    [
        lambda: model_of(keras.layers.Dense(3), keras.layers.BatchNormalization(), Scale()),
        lambda: model_of(keras.Sequential([keras.layers.Lambda(double)]), Registered()),
        lambda: vocabulary_of("a", "a", "b"),
    ],
)
def test_a_model_that_keras_loads_has_no_problem_and_draws_no_numbers(make, tmp_path):
    model = make()
    state = random.getstate()
    assert saving_problem(model) is None
    assert random.getstate() == state
    assert save_model(model, str(tmp_path), Report(Role(), "logs"))[0] == "model.keras"


def test_what_to_import_before_the_model_is_loaded_is_logged():
    assert import_note(model_of(keras.layers.Dense(2))) is None
    module = __name__
    assert import_note(model_of(Registered())) == (
        f"before keras.models.load_model() of model.keras, import {module}"
    )
    assert import_note(model_of(Registered(), Scale())).endswith(
        f'import {module}, and pass custom_objects={{"Scale": Scale}}, or add '
        "@keras.saving.register_keras_serializable() to them"
    )
