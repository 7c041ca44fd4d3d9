"""The variables of a model and all its optimizers: values by name, and whose they are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.keras_compat import keras_optimizers

from .variable_names import optimizer_names, stable_names, unique_names

_REMEDY = "use a new --job-dir, or --no-resume to start from scratch"
# Arguments of a layer that change how it is trained, and not what it computes when it is trained.
_TRAINING_ARGUMENT = re.compile(
    r"name|trainable|dtype|seed|rate|stddev|momentum|\w*(initializer|regularizer|constraint)"
)
_LONGEST_LIST = 16  # a vocabulary is longer


class ModelState:
    """The variables of a compiled model and all its optimizers.

    The model is built in the strategy, and its optimizers have created their variables.
    """

    def __init__(
        self,
        model: keras.Model,
        strategy: tf.distribute.Strategy,
        *,
        weights_only: bool = False,  # whether the variables of optimizers are left out
    ) -> None:
        self._model = model
        self._weights_only = weights_only
        self._optimizers = {} if weights_only else find_optimizers(model)
        # By name, each once, in the same order on every task.
        self.variables = _named_variables(model, self._optimizers)
        # TensorFlow's variable of each replica of this task: to read or assign a distributed
        # variable takes ten times as long.
        self._components = [
            strategy.experimental_local_results(variable.value)
            for variable in self.variables.values()
        ]

    def describe(self) -> dict[str, Any]:
        """Return whose variables these are, as JSON can hold it.

        ``optimizers`` has a class for each attribute of the model.
        """
        return {
            "model": type(self._model).__name__,
            "optimizers": {name: _class_name(each) for name, each in self._optimizers.items()},
            "layers": _describe_layers(self._model),
            "variables": [
                [name, variable.dtype, list(variable.shape)]
                for name, variable in self.variables.items()
            ],
        }

    def check_same(self, saved: Mapping[str, Any]) -> None:
        """Refuse a checkpoint of another model; `saved` is what `describe` returned then."""
        current = json.loads(json.dumps(self.describe()))  # tuples are lists, as in the file
        if self._weights_only:  # the first of a checkpoint's variables
            variables = saved["variables"][: len(current["variables"])]
            saved = {**saved, "optimizers": {}, "variables": variables}
        difference = _difference(saved, current)
        if difference:
            raise ModelError(f"the checkpoint is not of this model: {difference}; {_REMEDY}")

    def components(self, replica: int) -> dict[str, Any]:
        """Return TensorFlow's variables of a replica of this task, from 0, by name."""
        parts = (components[replica % len(components)] for components in self._components)
        return dict(zip(self.variables, parts, strict=True))

    def tensors(self, replica: int) -> dict[str, tf.Tensor]:
        """Return the values of a replica of this task by name; later training changes none.

        One call copies them from a GPU. On a CPU nothing is copied here: TensorFlow copies a
        variable that is updated while its value is in use.
        """
        values = [*map(tf.convert_to_tensor, self.components(replica).values())]
        with tf.device("CPU:0"):
            return dict(zip(self.variables, tf.identity_n(values), strict=True))

    def snapshot(self) -> dict[str, np.ndarray]:
        """Return the values of this task's first replica by name, as `tensors` does."""
        return {name: np.asarray(value) for name, value in self.tensors(0).items()}

    def assign(self, values: Sequence[np.ndarray]) -> None:
        """Set the variables to values in the order of `variables`."""
        for components, value in zip(self._components, values, strict=True):
            for component in components:
                component.assign(value)


def find_optimizers(model: keras.Model) -> dict[str, keras.optimizers.Optimizer]:
    """Return all optimizers of a model by attribute, such as ``generator_optimizer``.

    Those in lists and dicts, of nested models and in a MultiOptimizer are included; each once.
    """
    layers = keras_compat.all_layers(model)
    prefixes = [
        "",
        *(f"{name}/" for name in unique_names(stable_names(layer.name for layer in layers[1:]))),
    ]
    named: dict[str, keras.optimizers.Optimizer] = {}
    for prefix, layer in zip(prefixes, layers, strict=True):
        for attribute, value in vars(layer).items():
            for suffix, optimizer in _optimizers_in(value):
                is_known = any(optimizer is other for other in named.values())
                # TensorFlow tracks the attributes of a model once more under private names.
                if not is_known and not attribute.startswith("_"):
                    named[f"{prefix}{attribute}{suffix}"] = optimizer
    return named


def _optimizers_in(value: Any) -> Iterator[tuple[str, keras.optimizers.Optimizer]]:
    if isinstance(value, keras.optimizers.Optimizer):
        yield "", value
        several = keras_optimizers.parts(value)
        yield from ((f"/{n}", part) for n, part in enumerate(several) if len(several) > 1)
    elif isinstance(value, (list, tuple, dict)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in items:
            if isinstance(part, keras.optimizers.Optimizer):
                yield f"/{key}", part


def _named_variables(
    model: keras.Model, optimizers: Mapping[str, keras.optimizers.Optimizer]
) -> dict[str, keras.Variable]:
    variables = list({id(variable): variable for variable in model.variables}.values())
    paths = [variable.path for variable in variables]
    names = stable_names(paths)
    by_path = dict(zip(paths, names, strict=True))
    known = set(map(id, variables))
    for attribute, optimizer in optimizers.items():
        added = [variable for variable in optimizer.variables if id(variable) not in known]
        own = optimizer_names([variable.path for variable in added], by_path)
        known |= set(map(id, added))
        variables += added
        names += [f"{attribute}/{name}" for name in own]
    return dict(zip(unique_names(names), variables, strict=True))


def _class_name(optimizer: keras.optimizers.Optimizer) -> str:
    inner = getattr(optimizer, "inner_optimizer", None)
    name = type(optimizer).__name__
    return name if inner is None else f"{name}({_class_name(inner)})"


def _describe_layers(model: keras.Model) -> list[list[Any]]:
    layers = keras_compat.all_layers(model)[1:]
    names = stable_names(layer.name for layer in layers)
    return [
        [name, type(layer).__name__, _arguments(layer)]
        for name, layer in zip(names, layers, strict=True)
    ]


def _arguments(layer: keras.Layer) -> dict[str, Any]:
    """Return the arguments that decide what a layer computes, without those of inner layers."""
    if isinstance(layer, keras.Model):
        return {}
    try:
        config = layer.get_config()
    except Exception:  # noqa: BLE001 - the user's get_config(), which need not exist
        return {}
    return {
        name: value
        for name, value in config.items()
        if not _TRAINING_ARGUMENT.fullmatch(name) and _is_plain(value)
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return len(value) <= _LONGEST_LIST and all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _difference(saved: Mapping[str, Any], current: Mapping[str, Any]) -> str | None:
    """Return the first difference of two descriptions, both as JSON holds them."""
    for old_facts, new_facts in zip(_facts(saved), _facts(current), strict=True):
        for old, new in zip_longest(old_facts, new_facts):
            if old is None or new is None:
                owner = "the checkpoint" if new is None else "this model"
                return f"only {owner} has {(old or new)[0]}"
            (old_name, before), (name, now) = old, new
            if old_name != name:
                return f"{old_name} of the checkpoint is {name} here"
            for key in (key for key in now if key in before):  # versions of Keras add arguments
                if before[key] != now[key]:
                    return (
                        f"{name} differs: {key} is {before[key]!r} in the checkpoint and "
                        f"{now[key]!r} here"
                    )
    return None


def _facts(described: Mapping[str, Any]) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Yield the model, its optimizers, layers and variables: their names and arguments."""
    yield [(f"model {described['model']}", {})]
    optimizers = described["optimizers"].items()
    yield [(f"model.{name}", {"class": class_name}) for name, class_name in optimizers]
    layers = described["layers"]
    yield [(f"layer {name} ({class_name})", arguments) for name, class_name, arguments in layers]
    variables = described["variables"]
    yield [
        (f"variable {name}", {"dtype": dtype, "shape": shape}) for name, dtype, shape in variables
    ]
