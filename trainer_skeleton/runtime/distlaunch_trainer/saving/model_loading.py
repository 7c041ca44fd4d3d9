"""Whether Keras can write a model and load it, in a process that has the user's classes only."""

from __future__ import annotations

import json
import random
import tempfile
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import keras
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.errors import summarize

_Value = TypeVar("_Value")


def saving_problem(model: keras.Model) -> str | None:
    """Return what of ``model.keras`` Keras cannot write or load and how to fix it, or None.

    Layers are made of their configurations, and not built: it costs no memory, and can be called
    before the training.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras gives them again as it saves the model
        try:
            json.dumps(keras.saving.serialize_keras_object(model.get_compile_config()))
        except Exception as error:  # noqa: BLE001 - get_config() is the user's
            return f"the arguments of compile(): {type(error).__name__}: {summarize(error)}"
        for layer in reversed(keras_compat.all_layers(model)):  # inner layers first
            if problem := _apart(lambda layer=layer: _layer_problem(layer)):
                return f"the layer {layer.name} ({type(layer).__name__}): {problem}"
    return None


def file_problem(path: Path, model: keras.Model) -> str | None:
    """Return why Keras cannot load a file of a model, or None if it can."""

    def load() -> str | None:
        try:
            with tf.device("CPU:0"):  # a GPU may have no memory for a second model
                keras.saving.load_model(path, custom_objects=_classes(model), compile=False)
        except Exception as error:  # noqa: BLE001 - the user's classes may raise anything
            return summarize(error)
        return None

    return saving_problem(model) or _apart(load)


def import_note(model: keras.Model) -> str | None:
    """Return what a process needs before it loads the model, or None for layers of Keras alone."""
    classes = _classes(model).values()
    if not classes:
        return None
    unknown = [n for n, kind in _classes(model).items() if not _is_registered(kind)]
    modules = ", ".join(sorted({kind.__module__ for kind in classes}))
    note = f"before keras.models.load_model() of model.keras, import {modules}"
    given = ", ".join(f'"{name}": {name}' for name in unknown)
    register = "or add @keras.saving.register_keras_serializable() to them"
    return f"{note}, and pass custom_objects={{{given}}}, {register}" if unknown else note


def _layer_problem(layer: keras.Layer) -> str | None:
    """Return why a layer has no configuration, or cannot be made of it and its assets, or None."""
    try:
        config = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
        if isinstance(layer, keras.Model) and _is_of_keras(type(layer)):
            return None  # it is made of its layers
        restored = keras.saving.deserialize_keras_object(
            _without_builds(config), custom_objects=_classes(layer)
        )
    except Exception as error:  # noqa: BLE001 - the user's classes may raise anything
        if isinstance(layer, keras.layers.Lambda):
            return (
                "Keras loads no Python lambda: use a function with a name and "
                "@keras.saving.register_keras_serializable(), or a layer class"
            )
        if _is_of_keras(type(layer)):
            return summarize(error)
        return f"{summarize(error)}: add get_config() with all arguments of its constructor"
    with suppress(Exception):  # blank text is a key that Keras's vocabularies may refuse
        if not hasattr(layer, "save_assets") or _has_assets_of(restored, layer):
            return None
    return (
        "Keras loads another vocabulary than it saves: blank text is lost, and so is text with "
        "line breaks; replace it in the data, e.g. by 'unknown', before adapt()"
    )


def _has_assets_of(restored: Any, layer: Any) -> bool:
    """Return whether a layer made of its configuration loads the assets that the layer saves."""
    with tempfile.TemporaryDirectory() as saved, tempfile.TemporaryDirectory() as loaded:
        store: dict[str, Any] = {}
        layer.save_own_variables(store)
        layer.save_assets(saved)
        restored.load_own_variables(store)
        restored.load_assets(saved)
        restored.save_assets(loaded)
        contents = [
            {path.name: path.read_bytes() for path in Path(folder).iterdir()}
            for folder in (saved, loaded)
        ]
    return contents[0] == contents[1]


def _apart(function: Callable[[], _Value]) -> _Value:
    """Call a function in a thread, where Keras's names, scopes and random seeds are its own."""
    state = random.getstate()
    try:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(function).result()
    finally:
        random.setstate(state)


def _without_builds(config: Any) -> Any:
    if isinstance(config, dict):
        return {k: _without_builds(v) for k, v in config.items() if k != "build_config"}
    return [_without_builds(each) for each in config] if isinstance(config, list) else config


def _classes(layer: keras.Layer) -> dict[str, type]:
    """Return the user's classes of a layer and those inside it, by name."""
    kinds = map(type, keras_compat.all_layers(layer))
    return {kind.__name__: kind for kind in kinds if not _is_of_keras(kind)}


def _is_of_keras(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "keras"


def _is_registered(kind: type) -> bool:
    return keras.saving.get_registered_name(kind) != kind.__name__
