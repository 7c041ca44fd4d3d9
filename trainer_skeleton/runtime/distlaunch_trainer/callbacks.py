"""The user's callbacks: which of them run where, what they have to see, what they count.

They run on every task with the same logs; those that only write files run on the chief. What they
count is kept in checkpoints, so that a run that goes on has them go on too.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from . import keras_compat
from .errors import ModelError, StorageError
from .explain import from_user
from .report import Report
from .storage import read_whole, write_whole

kc = keras.callbacks

WRITERS = (kc.ModelCheckpoint, kc.CSVLogger, kc.TensorBoard)
"""Callbacks that only write files."""

COUNTED = {
    kc.EarlyStopping: ("wait", "stopped_epoch", "best", "best_epoch", "best_weights"),
    kc.ReduceLROnPlateau: ("wait", "cooldown_counter", "best"),
    kc.ModelCheckpoint: ("best", *keras_compat.CALLBACK_STATE[kc.ModelCheckpoint]),
    kc.TensorBoard: keras_compat.CALLBACK_STATE[kc.TensorBoard],
}
"""What Keras's own callbacks count."""

_COUNT_NOTHING = (
    *(kc.CSVLogger, kc.History, kc.LambdaCallback, kc.LearningRateScheduler),
    *(kc.ProgbarLogger, kc.RemoteMonitor, kc.SwapEMAWeights, kc.TerminateOnNaN),
)
_TRAIN_HOOKS = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")
_TEST_HOOKS = ("on_test_batch_begin", "on_test_batch_end")


class Callbacks(kc.CallbackList):
    """Keras's own list of callbacks, with those that belong on this task.

    Parameters
    ----------
    given
        What ``callbacks()`` of ``trainer/model.py`` gives.
    model
        The model, compiled and built.
    epochs, steps
        Epochs in all, and steps of one.
    is_chief
        Whether this task writes files.
    report
        Where to log what is left out.

    Raises
    ------
    ModelError
        If one of them would do harm here, or counts what no checkpoint can hold.
    """

    def __init__(
        self,
        given: list[kc.Callback],
        model: keras.Model,
        *,
        epochs: int,
        steps: int,
        is_chief: bool,
        report: Report,
    ) -> None:
        _check_leaves_weights(given)
        keras_compat.allow_float(model.optimizer.variables)
        self._report = report
        used = [each for each in given if not isinstance(each, kc.BackupAndRestore)]
        if len(used) < len(given):
            report.log("BackupAndRestore is left out: every run resumes from its checkpoints")
        # From all callbacks, those of the chief alone too: the tasks must agree on it.
        self.see_batches = any(_has_hook(each, _TRAIN_HOOKS) for each in used)
        self.see_test_batches = any(_has_hook(each, _TEST_HOOKS) for each in used)
        self.take_bad_losses = any(isinstance(each, kc.TerminateOnNaN) for each in used)
        own = [each for each in used if is_chief or not isinstance(each, WRITERS)]
        super().__init__(own, add_history=True, model=model, epochs=epochs, steps=steps, verbose=0)
        self._own = own

    def state(self) -> tuple[list[Any], list[np.ndarray]]:
        """Return what the callbacks count: as JSON can hold it, and its arrays.

        Raises
        ------
        ModelError
            If a checkpoint cannot hold it.
        """
        arrays: list[np.ndarray] = []
        states = []
        for name, callback in self._named():
            try:
                state = _packed(_state_of(callback), arrays)
            except TypeError as problem:
                raise ModelError(
                    f"get_state() of {type(callback).__name__} in trainer/model.py gives {problem}"
                    f", which no checkpoint can hold: numbers, text, lists, dicts and arrays it can"
                ) from None
            states.append([name, state])
        return states, arrays

    def resume(
        self, epochs: list[dict[str, Any]], states: list[Any], arrays: list[np.ndarray]
    ) -> None:
        """Begin the training again after ``epochs``, with what the callbacks had counted."""
        for callback in self._own:
            if isinstance(callback, kc.CSVLogger):
                _drop_rows(callback, len(epochs))
        self.on_train_begin()
        for record in epochs:
            self.model.history.on_epoch_end(record["epoch"] - 1, dict(record["logs"]))
        known = dict(states)
        for name, callback in self._named():
            if name in known:
                _give_state(callback, _unpacked(known[name], arrays))
        fresh = [type(c).__name__ for n, c in self._named() if _is_unknown(c) or n not in known]
        if fresh:
            self._report.warn(
                f"these callbacks start from scratch, no checkpoint holds their state: "
                f"{', '.join(fresh)}; give them get_state() and set_state(state)"
            )

    def _named(self) -> list[tuple[str, kc.Callback]]:
        """Return the callbacks, each by its class and which of that class it is."""
        count: Counter[str] = Counter()
        named = []
        for callback in self._own:
            name = type(callback).__name__
            count[name] += 1
            named.append((f"{name}-{count[name]}", callback))
        return named


def templates(states: list[Any]) -> list[np.ndarray]:
    """Return arrays of the shapes and types of those that belong to ``states``."""
    arrays: dict[int, np.ndarray] = {}

    def look(value: Any) -> None:
        if isinstance(value, dict) and "array" in value:
            arrays[value["array"]] = np.zeros(value["shape"], value["type"])
        elif isinstance(value, (dict, list)):
            for part in value.values() if isinstance(value, dict) else value:
                look(part)

    look(states)
    return [arrays[number] for number in sorted(arrays)]


def _state_of(callback: kc.Callback) -> Any:
    if _returns_state(callback):
        return from_user(f"get_state() of {type(callback).__name__}", callback.get_state)
    return {name: getattr(callback, name, None) for name in _counted(callback)}


def _give_state(callback: kc.Callback, state: Any) -> None:
    if _returns_state(callback):
        give: Callable[[], Any] = lambda: callback.set_state(state)  # noqa: E731
        from_user(f"set_state() of {type(callback).__name__}", give)
        return
    for name in _counted(callback):
        if name in state:
            setattr(callback, name, state[name])


def _counted(callback: kc.Callback) -> tuple[str, ...]:
    return next((names for kind, names in COUNTED.items() if isinstance(callback, kind)), ())


def _returns_state(callback: kc.Callback) -> bool:
    return all(callable(getattr(callback, name, None)) for name in ("get_state", "set_state"))


def _is_unknown(callback: kc.Callback) -> bool:
    """Return whether a callback may have state that it does not return."""
    kinds = (*COUNTED, *_COUNT_NOTHING)
    return not _returns_state(callback) and type(callback) not in kinds


def _packed(value: Any, arrays: list[np.ndarray]) -> Any:
    """Return a state as JSON can hold it, its arrays put aside.

    A dict becomes ``{"dict": ...}``, which distinguishes it from an encoded array.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [_packed(part, arrays) for part in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _packed(part, arrays) for key, part in value.items()}}
    if keras.ops.is_tensor(value) or isinstance(value, (np.ndarray, keras.Variable)):
        array = keras.ops.convert_to_numpy(value)
        if array.dtype != object:
            arrays.append(array)
            here = len(arrays) - 1
            return {"array": here, "shape": list(array.shape), "type": array.dtype.name}
    raise TypeError(f"a {type(value).__name__}")


def _unpacked(value: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_unpacked(part, arrays) for part in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    return {key: _unpacked(part, arrays) for key, part in value["dict"].items()}


def _drop_rows(logger: kc.CSVLogger, epochs: int) -> None:
    """Have a log go on after ``epochs``; a run may have written more than its checkpoint holds."""
    logger.append = True
    try:
        text = read_whole(logger.filename).decode()
    except (StorageError, UnicodeDecodeError):
        return
    rows = list(csv.reader(io.StringIO(text), delimiter=logger.sep))
    kept = [row for row in rows if not (row and row[0].isdigit() and int(row[0]) >= epochs)]
    if len(kept) < len(rows):
        file = io.StringIO()
        csv.writer(file, delimiter=logger.sep).writerows(kept)
        write_whole(logger.filename, file.getvalue().encode())


def _has_hook(callback: kc.Callback, hooks: tuple[str, ...]) -> bool:
    """Return whether a callback wants to see single batches."""
    if isinstance(callback, kc.ModelCheckpoint) and callback.save_freq == "epoch":
        return False
    if type(callback) is kc.TensorBoard and callback.update_freq == "epoch":
        return keras_compat.traces_batches(callback) or callback.write_steps_per_second
    changed = (getattr(type(callback), hook) is not getattr(kc.Callback, hook) for hook in hooks)
    return any(changed) or any(hook in vars(callback) for hook in hooks)


def _check_leaves_weights(callbacks: list[kc.Callback]) -> None:
    if any(getattr(callback, "swap_on_epoch", False) for callback in callbacks):
        raise ModelError(
            "SwapEMAWeights(swap_on_epoch=True) would have checkpoints hold the averages instead "
            "of the weights: leave swap_on_epoch out"
        )
