from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import keras
import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.errors import TrainerError
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.saving.model_files import save_model

if TYPE_CHECKING:
    from pathlib import Path

# Keras's own, as it writes a SavedModel.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def report() -> Report:
    return Report(Role(), "logs")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def model_of(*layers: keras.layers.Layer) -> keras.Model:
    model = keras.Sequential([keras.layers.Input((4,)), *layers])
    model.compile("sgd", "mse")
    return model


def test_the_saved_model_predicts_without_random_augmentation(tmp_path):
    """Keras's own export does not: layers of augmentation train by default."""
    model = model_of(keras.layers.Reshape((2, 2, 1)), keras.layers.RandomFlip())
    save_model(model, str(tmp_path), report())
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    served = tf.saved_model.load(str(tmp_path)).serve(x)
    np.testing.assert_array_equal(served, x.reshape(8, 2, 2, 1))
    assert "__call__" not in vars(model)


def fail(*_: object, **__: object) -> None:
    raise RuntimeError("not me")


def test_model_that_cannot_be_exported_is_saved_for_keras(tmp_path, capsys, monkeypatch):
    model = model_of(keras.layers.Dense(3))
    save_model(model, str(tmp_path), report())
    monkeypatch.setattr(model, "export", fail)
    assert save_model(model, str(tmp_path), report()) == ["model.keras"]
    assert "saved_model.pb" not in names(tmp_path)
    assert keras.models.load_model(tmp_path / "model.keras").count_params() == 15
    warning = "saved_model.pb was not written: not me; written: model.keras"
    assert capsys.readouterr().err == f"trainer: warning: {warning}\n"


@keras.saving.register_keras_serializable()
class UsesTable(keras.layers.Layer):
    """A layer with a lookup table of its module's, which no SavedModel can hold."""

    values = tf.constant([1, 2], tf.int64)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(values, values), 0)

    def call(self, x: object) -> object:
        return tf.cast(self.table.lookup(tf.cast(x, tf.int64)), tf.float32)


@pytest.mark.parametrize("error", [None, SystemExit(9), tf.errors.InvalidArgumentError(0, 0, "no")])
def test_model_is_in_its_folder_before_it_is_exported(tmp_path, monkeypatch, error):
    """So it is not lost, whatever happens in the export."""
    model = model_of(UsesTable(), keras.layers.Dense(3))
    if error:
        monkeypatch.setattr(model, "export", lambda *_, **__: raise_(error))
    with contextlib.suppress(SystemExit):
        assert save_model(model, str(tmp_path), report()) == ["model.keras"]
    assert names(tmp_path) == ["model.keras"]


def raise_(error: BaseException) -> None:
    raise error


def test_model_that_cannot_be_saved_at_all_is_an_error(tmp_path, monkeypatch):
    model = model_of(keras.layers.Dense(3))
    for way in ("export", "save", "save_weights"):
        monkeypatch.setattr(model, way, fail)
    with pytest.raises(TrainerError) as failed:
        save_model(model, str(tmp_path), report())
    assert str(failed.value) == (
        "the model cannot be saved: model.keras was not written: not me; model.weights.h5 was not "
        "written: not me; saved_model.pb was not written: not me"
    )
    assert names(tmp_path) == []
