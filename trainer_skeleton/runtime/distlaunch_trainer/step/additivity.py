"""Whether what replicas compute from their rows adds up to what one worker computes from all.

It is found by computing (``simulation``) before the first step, so it does not matter by which
operations and functions a loss is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.task.explain import definition, user_code

from . import step_context
from .custom_steps import Kind, gradient_kinds, overrides
from .gathered_rows import check_can_gather
from .losses import ReplicaLoss, added_sums, own_sums
from .simulation import PARTS, ROWS, SimulatedReplica, simulate, simulate_loss

_FRACTIONS = [len(numbers) / ROWS for numbers in PARTS]
_ROUNDING = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
_MARKS = (0.0, -1.0, -100.0, -999.0, 255.0, np.nan)  # of what is missing, or padding
_EACH = "and each replica has its own rows, so the weights depend on the number of replicas"


def compare_parts(model: keras.Model, spec: Any, *, trains: bool = True) -> list[str]:
    """Find out what of a built model's step is no mean over the rows of a batch.

    From now on losses that are sums over the rows count as such, and compiled losses that are
    neither are computed from the rows of all replicas. Warnings are returned about the rest. A
    ``train_step()`` of the model is left out unless it `trains`.
    """
    if isinstance(model.distribute_strategy, tf.distribute.TPUStrategy):
        return []  # its steps are computed by XLA, for one shape
    has_own_step = overrides(model, "train_step")
    methods = ["train_step"] if trains or not has_own_step else []
    if has_own_step and model.loss is not None and overrides(model, "call"):
        methods.append("compute_loss")  # evaluation uses the compiled loss, that step may not
    notes: dict[str, None] = {}
    try:  # of the user's code, on numbers that are made up
        with (
            user_code(f"{type(model).__name__} was not compared on parts of a batch"),
            model.distribute_strategy.scope(),
        ):
            for method in methods:
                notes |= dict.fromkeys(_Comparison(model, spec, method).notes())
    except ModelError as error:
        taken = "single numbers that it adds to the loss are taken to be means over the rows"
        notes[f"{error}: {taken} of a batch; divide a sum by their number"] = None
    return list(notes)


class _Comparison:
    """A model's step on a small batch and on parts of it."""

    def __init__(self, model: keras.Model, spec: Any, method: str) -> None:
        self._model, self._spec = model, spec
        methods = dict.fromkeys((method, "compute_loss"))
        self._own = next((n for n in methods if overrides(model, n)), "")
        layers = keras_compat.all_layers(model)
        rounding = max(_rounding(layer.compute_dtype) for layer in layers)
        self._tolerance = min(100 * rounding, rounding**0.5)

    def notes(self) -> Iterator[str]:
        keras_compat.replace_losses(
            self._model, lambda loss: loss if isinstance(loss, ReplicaLoss) else ReplicaLoss(loss)
        )
        replicas = self._simulate()
        yield from self._notes_of_layers([replica.layer_calls for replica in replicas])
        yield from self._notes_of_added([replica.added for replica in replicas])
        yield from self._notes_of_losses([replica.losses for replica in replicas])
        yield from self._notes_of_assigned([replica.assigned for replica in replicas])
        if self._own:  # by now losses are rescaled, or computed from all rows
            yield from self._notes_of_results()

    def _simulate(self, *, weighs_gradients: bool = True) -> list[SimulatedReplica]:
        step = self._model.train_step if self._own == "train_step" else self._compute_loss
        return simulate(self._model, self._spec, step, weighs_gradients=weighs_gradients)

    def _compute_loss(self, data: Any) -> None:
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        loss = self._model.compute_loss(x, y, self._model(x, training=True), weights)
        step_context.current().simulated.results.append(("", [tf.reduce_sum(loss)]))

    def _notes_of_layers(self, calls: list[list[Any]]) -> Iterator[str]:
        """Name the innermost layers whose outputs for a row depend on other rows."""
        if len({len(of_replica) for of_replica in calls}) > 1:
            return
        mixing: set[keras.Layer] = set()
        for of_replicas in zip(*calls, strict=True):
            (layer, *_), *_ = of_replicas
            inputs, outputs = ([call[n] for call in of_replicas] for n in (1, 2))
            is_mixing = self._are_by_row(*inputs) and not self._are_by_row(*outputs)
            if is_mixing and mixing.isdisjoint(keras_compat.all_layers(layer)):
                mixing.add(layer)
                yield (
                    f"{_named(layer)} computes with several rows of a batch, {_EACH}: compute each "
                    f"row by itself, or give what compares rows to compile(loss=...)"
                )

    def _notes_of_added(self, added: list[dict[Any, list[Any]]]) -> Iterator[str]:
        for layer, call in added[0]:
            values = [of_replica.get((layer, call), []) for of_replica in added]
            kind = self._kind(values)
            added_sums.setdefault(layer, {})[call] = kind == "sum"
            named = f"add_loss() of the layer {layer.name} ({call})"
            if kind == "mean" and not any(0 < abs(float(v)) < np.inf for v in values[0]):
                yield (
                    f"{named} is given {float(values[0][0]):g} by the first weights, so it is not "
                    f"known whether it is a mean over the rows of a batch or a sum: it is taken to "
                    f"be a mean"
                )
            if kind is None:
                yield (
                    f"{named} is neither a mean nor a sum over the rows of a batch, {_EACH}: call "
                    f"it for each mean and each sum by itself, and give what compares rows to "
                    f"compile(loss=...)"
                )

    def _notes_of_assigned(self, assigned: list[list[tuple[Any, Any]]]) -> Iterator[str]:
        """Name the first weight that a step sets by the gradients or rows of its replica."""
        weights = {id(weight) for weight in self._model.trainable_variables}
        for of_replicas in zip(*assigned, strict=False):
            variable, _ = of_replicas[0]
            if id(variable) not in weights:
                continue
            values = np.array([tf.cast(value, tf.float64) for _, value in of_replicas])
            scale = self._tolerance * np.abs(values).max(initial=0)
            if np.ptp(values, axis=0).max(initial=0) > scale:
                method = getattr(type(self._model), self._own or "call")
                yield (
                    f"{type(self._model).__name__}.{self._own or 'call'}(){definition(method)} "
                    f"assigns the weight {variable.path} by the rows of its replica, {_EACH}: let "
                    f"the optimizer update weights"
                )
                return

    def _notes_of_losses(self, losses: list[dict[ReplicaLoss, list[Any]]]) -> Iterator[str]:
        """Have compiled losses that do not add up computed from the rows of all replicas."""
        counted = set(map(id, self._model.metrics_variables))  # which replicas count by their rows
        for loss, calls in losses[0].items():
            (_, arguments, assigned), *_ = calls
            values = [[value for value, *_ in each.get(loss, [])] for each in losses]
            is_stateless = counted.issuperset(map(id, assigned))
            simulate_marked = partial(simulate_loss, self._model, loss.loss, arguments)
            of_marked = map(simulate_marked, _marks_of(loss.loss))
            if is_stateless and all(map(self._is_reduced, (values, *of_marked))):
                continue
            try:
                for name, each in zip(
                    ("y_true", "y_pred", "sample_weight"), arguments, strict=True
                ):
                    for part in tf.nest.flatten(each if each is not None else []):
                        check_can_gather(name, part)
                loss.gathers_rows = True
            except ModelError as error:
                named = _remedy(loss.loss, arguments[1])
                yield f"the loss {named} is no mean over the rows, and {error}"

    def _is_reduced(self, values: list[list[Any]]) -> bool:
        """Return whether losses are means over the rows, or those that are not reduced, summed."""
        flat = [value for of_replica in values for value in of_replica]
        if not flat:
            return True
        if None in flat:
            return False
        kind = "sum" if any(value.shape.rank for value in flat) else "mean"
        return self._kind([[tf.reduce_sum(v) for v in each] for each in values]) == kind

    def _notes_of_results(self) -> Iterator[str]:
        """Name what a model's own method computes that does not add up, and count sums as such."""
        results = [replica.results for replica in self._simulate()]
        kinds = self._kinds(results)
        if self._own == "train_step":
            if None in kinds:  # a gradient of synchronized moments depends on what is done with it
                sums = self._kinds([r.results for r in self._simulate(weighs_gradients=False)])
                kinds = sums if set(sums) == {"sum"} else kinds
            gradient_kinds[self._model] = kinds
        else:
            own_sums[self._model] = kinds == ["sum"]
        name, method = type(self._model).__name__, getattr(type(self._model), self._own)
        for number in (n for n, kind in enumerate(kinds) if kind is None):
            line = results[0][number][0] or definition(method)
            yield (
                f"{name}.{self._own}(){line} computes neither a mean nor a sum over the rows of a "
                f"batch, {_EACH}: use means over the rows, give what compares rows to "
                f"compile(loss=...), and let the optimizer clip"
            )

    def _kinds(self, results: list[list[tuple[str, list[Any]]]]) -> list[Kind]:
        if len({len(of_replica) for of_replica in results}) > 1:
            return [None for _ in results[0]]
        calls = zip(*results, strict=True)
        return [self._kind([tensors for _, tensors in call]) for call in calls]

    def _kind(self, values: Sequence[Sequence[Any]]) -> Kind:
        """Return what tensors of parts of a batch are to those of the whole, which come first."""
        if len({len(tensors) for tensors in values}) > 1:
            return None
        groups = [
            [np.asarray(tf.cast(value, tf.float64)) for value in group]
            for group in zip(*values, strict=True)
            if group[0] is not None
        ]
        largest = max((np.abs(value).max() for group in groups for value in group), default=0.0)
        if not np.isfinite(largest):
            return "mean"  # as nothing can be found out

        def are_all(weights: Sequence[float]) -> bool:
            return all(
                np.abs(whole - sum(w * part for w, part in zip(weights, parts, strict=True))).max()
                <= self._tolerance * (sum(np.abs([whole, *parts]).max(-1)) + largest)
                for whole, *parts in (np.reshape(group, (len(group), -1)) for group in groups)
            )

        return "mean" if are_all(_FRACTIONS) else "sum" if are_all([1] * len(PARTS)) else None

    def _are_by_row(self, whole: list[np.ndarray], *parts: list[np.ndarray]) -> bool:
        """Return whether figures of the rows of parts are those of the rows of the whole.

        A row may be several of a tensor, in any order; a tensor without rows is the same for all.
        """
        if len({len(figures) for figures in (whole, *parts)}) > 1:
            return False
        for of_whole, *of_parts in zip(whole, *parts, strict=True):
            candidates = [np.concatenate(of_parts), *of_parts]
            scale = self._tolerance * np.abs(of_whole).max(initial=0)
            for part in (part for part in candidates if len(part) == len(of_whole)):
                if np.abs(np.sort(part) - np.sort(of_whole)).max(initial=0) > scale:
                    return False
        return True


def _marks_of(loss: Any) -> Sequence[float]:
    """Return the numbers to compare a loss with, of which its function may leave rows out."""
    return () if getattr(loss, "fn", type(loss)).__module__.startswith("keras.") else _MARKS


def _remedy(loss: Any, y_pred: Any) -> str:
    """Return a loss by name, and what helps where its rows cannot be exchanged."""
    named = f"{loss.name}{definition(getattr(loss, 'fn', type(loss).call))}"
    rank = getattr(y_pred, "shape", tf.TensorShape(None)).rank
    if rank and getattr(loss, "axis", 0) is None:
        return f"{named}: {type(loss).__name__}(axis={tuple(range(1, rank))})"
    return named


def _named(layer: keras.Layer) -> str:
    function = getattr(layer, "function", None) or type(layer).call
    return f"the layer {layer.name} of {type(layer).__name__}{definition(function)}"


def _rounding(dtype: str) -> float:
    """Return the relative error of a product; GPUs round those of float32, too."""
    if dtype == "float32" and tf.config.list_physical_devices("GPU"):
        dtype = "float16"
    return _ROUNDING.get(dtype, _ROUNDING["float32"])
