from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer.distributed.cluster import Role
from trainer.distributed.errors import TrainerError
from trainer.distributed.model_files import save_model, serialization_problem
from trainer.distributed.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Keras's own, as it writes a SavedModel.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def report() -> Report:
    return Report(Role(), "logs")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class Unsavable(keras.layers.Layer):
    """A layer without `get_config`, and with an argument that is no plain value."""

    def __init__(self, table: object) -> None:
        super().__init__()
        self._table = table
        self._dense = keras.layers.Dense(3)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self._dense(x)


class Refusing(keras.layers.Layer):
    def get_config(self) -> dict:
        raise NotImplementedError


def model_of(*layers: keras.layers.Layer, loss: object = "mse") -> keras.Model:
    model = keras.Sequential([keras.layers.Input((4,)), *layers])
    model.compile("sgd", loss)
    return model


def around(value: object) -> Callable[[object], object]:
    """Return a lambda that Keras would have to save with the value."""
    return lambda *x: value and x[0]


FIX = "add get_config() and @keras.saving.register_keras_serializable() to"


@pytest.mark.parametrize(
    ("model", "cause"),
    [
        (
            lambda: model_of(Unsavable(object()), Refusing(), Refusing()),
            f"classes Refusing, Unsavable: {FIX} them",
        ),
        (
            lambda: model_of(keras.Sequential([Refusing()])),  # not Sequential
            f"class Refusing: {FIX} it",
        ),
        (
            lambda: model_of(keras.layers.Lambda(around(object()))),
            "arguments of Lambda: write a layer class with get_config() in its place",
        ),
        (
            lambda: model_of(keras.layers.Dense(3), loss=around(object())),
            "arguments of compile(): TypeError: Cannot serialize object <object object at",
        ),
    ],
)
def test_model_that_cannot_be_saved_is_known_before_it_is_trained(model, cause):
    assert serialization_problem(model()).startswith(f"Keras cannot serialize the {cause}")


def test_model_that_can_be_saved_has_no_problem():
    layers = keras.layers.Dense(3), keras.layers.Lambda(lambda x: 2 * x)
    assert serialization_problem(model_of(*layers)) is None


def test_model_that_cannot_be_serialized_is_saved_as_weights_and_savedmodel(tmp_path, capsys):
    folder = tmp_path / "model"
    folder.mkdir()
    save_model(model_of(keras.layers.Dense(3)), str(folder), report())
    model = model_of(Unsavable(object()))
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    assert save_model(model, str(folder), report()) == ["model.weights.h5", "saved_model.pb"]
    # Of the model before nothing is left that could be taken for this one's.
    assert names(folder) == ["fingerprint.pb", "model.weights.h5", "saved_model.pb", "variables"]
    loaded = tf.saved_model.load(str(folder))
    np.testing.assert_allclose(loaded.serve(x), model(x), rtol=1e-5, atol=1e-6)
    again = model_of(Unsavable(object()))
    again.load_weights(folder / "model.weights.h5")
    np.testing.assert_array_equal(again(x), model(x))
    assert capsys.readouterr().err == (
        "trainer: warning: model.keras was not written: Keras cannot serialize the class "
        f"Unsavable: {FIX} it; written: model.weights.h5, saved_model.pb\n"
    )


TABLE_ENTRIES = tf.lookup.KeyValueTensorInitializer(tf.constant([1]), tf.constant([2.0]))


class Lookup(keras.layers.Layer):
    table = staticmethod(lambda: None)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.table().lookup(tf.cast(x, tf.int32))


def test_model_that_cannot_be_exported_is_saved_for_keras(tmp_path, capsys, monkeypatch):
    table = tf.lookup.StaticHashTable(TABLE_ENTRIES, 0.0)
    monkeypatch.setattr(Lookup, "table", staticmethod(lambda: table))
    folder = tmp_path / "model"
    folder.mkdir()
    save_model(model_of(keras.layers.Dense(3)), str(folder), report())
    assert save_model(model_of(Lookup()), str(folder), report()) == ["model.keras"]
    assert "saved_model.pb" not in names(folder)
    loaded = keras.models.load_model(folder / "model.keras", custom_objects={"Lookup": Lookup})
    assert loaded(np.ones((1, 4), np.float32))[0, 0] == 2.0
    printed = capsys.readouterr().err
    assert "saved_model.pb was not written: Tried to export a function which" in printed
    assert printed.endswith("; written: model.keras\n")


def test_model_that_cannot_be_saved_at_all_is_an_error(tmp_path, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("not me")

    model = model_of(keras.layers.Dense(3))
    for way in ("export", "save", "save_weights"):
        monkeypatch.setattr(model, way, fail)
    with pytest.raises(TrainerError) as failed:
        save_model(model, str(tmp_path), report())
    assert str(failed.value) == (
        "the model cannot be saved: saved_model.pb was not written: not me; model.keras was not "
        "written: not me; model.weights.h5 was not written: not me"
    )
    assert names(tmp_path) == []
