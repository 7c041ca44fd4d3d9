"""The user's callbacks: on which task they run, whether they need batches, and their state.

They run on every task with the same logs; those that only write files run on the chief. Their state
is kept in checkpoints, so that it is restored when a run resumes.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from distlaunch_trainer import keras_compat
from distlaunch_trainer.errors import ModelError, StorageError
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.task.explain import from_user
from distlaunch_trainer.task.storage import read_whole, write_whole

kc = keras.callbacks

CHIEF_ONLY = (kc.ModelCheckpoint, kc.CSVLogger, kc.TensorBoard, kc.RemoteMonitor)
"""Callbacks that only write files, or send what they are given."""

STATE_ATTRIBUTES = {
    kc.EarlyStopping: ("wait", "stopped_epoch", "best", "best_epoch", "best_weights"),
    kc.ReduceLROnPlateau: ("wait", "cooldown_counter", "best"),
    kc.ModelCheckpoint: ("best", *keras_compat.CALLBACK_STATE[kc.ModelCheckpoint]),
    kc.TensorBoard: keras_compat.CALLBACK_STATE[kc.TensorBoard],
}
"""The state of Keras's callbacks."""

_STATELESS = (
    *(kc.BackupAndRestore, kc.CSVLogger, kc.History, kc.LambdaCallback),
    *(kc.LearningRateScheduler, kc.ProgbarLogger, kc.RemoteMonitor),
    *(kc.SwapEMAWeights, kc.TerminateOnNaN),
)
TRAIN_HOOKS = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")
TEST_HOOKS = ("on_test_batch_begin", "on_test_batch_end")


class Callbacks(kc.CallbackList):
    """Keras's list of callbacks, with those that run on this task.

    Only some tasks have those that only write files (`writes`).
    """

    def __init__(
        self,
        given: list[kc.Callback],
        model: keras.Model,
        *,
        epochs: int,
        steps: int | None,
        writes: bool,
        report: Report,
        verbose: int = 0,  # of the progress bar, as `fit` takes it; 0 for no bar
    ) -> None:
        _check_supported(given, model.distribute_strategy.num_replicas_in_sync)
        self._report = report
        used = [c for c in given if not isinstance(c, kc.BackupAndRestore)]
        if len(used) < len(given):
            report.log("BackupAndRestore is left out: every run resumes from its checkpoints")
        # Whether a callback needs the logs of single batches, the bar those of some steps, and
        # whether a loss that is not finite is left to a callback.
        # Also of callbacks that run on the chief only: the tasks must agree.
        self.see_batches = any(has_hook(c, TRAIN_HOOKS) for c in used)
        self.see_test_batches = any(has_hook(c, TEST_HOOKS) for c in used)
        self.take_bad_losses = any(isinstance(c, kc.TerminateOnNaN) for c in used)
        self.show_progress = verbose == 1
        local = [c for c in used if writes or not isinstance(c, CHIEF_ONLY)]
        self._given_logs: dict[str, Any] = {}
        self._last_logs: dict[str, Any] = {}  # of the last epoch, as callbacks have changed them
        super().__init__(
            [*local, kc.LambdaCallback(on_epoch_end=self._keep_logs)],
            add_history=True,
            add_progbar=verbose != 0,
            model=model,
            epochs=epochs,
            steps=steps,
            verbose=verbose,
        )
        self._local = local

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._given_logs = dict(logs or {})
        super().on_epoch_end(epoch, logs)

    def _keep_logs(self, _: int, logs: Any) -> None:
        self._last_logs = dict(logs or {})

    @property
    def epoch_logs(self) -> dict[str, Any]:
        """The logs of the last epoch, with the numbers that callbacks added."""
        logs = self._last_logs.items()
        numbers = {name: value for name, value in logs if np.asarray(value).dtype.kind in "biuf"}
        return {**self._given_logs, **numbers}  # in the order of the metrics; Keras sorts them

    def end(self, record: dict[str, Any] | None) -> None:
        """End the training, as `fit` does: with the logs of the last epoch as they were given.

        If this process has trained no epoch, with those of its `record`.
        """
        self.on_train_end(self._given_logs or (logs_of(record) if record else None))

    def state(self) -> tuple[list[Any], list[np.ndarray]]:
        """Return the state of this task's callbacks as JSON values, and its arrays."""
        arrays: list[np.ndarray] = []
        states = []
        for name, callback in _named(self._local):
            try:
                state = _encode(_get_state(callback), arrays)
            except TypeError as problem:
                raise ModelError(
                    f"get_state() of {type(callback).__name__} returned {problem}, which cannot be "
                    f"saved: use numbers, text, lists, dicts and arrays"
                ) from None
            states.append([name, state])
        return states, arrays

    def resume(
        self,
        epochs: list[dict[str, Any]],
        states: list[Any],
        arrays: list[np.ndarray],
        first_epoch: int = 0,
    ) -> None:
        """Start the training after ``epochs``, with the state that the callbacks had.

        Warn of callbacks without one.
        """
        for callback in self._local:
            if isinstance(callback, kc.CSVLogger):
                _append_to_log(callback, first_epoch + len(epochs))
        self.on_train_begin()
        for number, record in enumerate(epochs, first_epoch):
            self.model.history.on_epoch_end(number, logs_of(record))
        self.restore(states, arrays)
        known, named = dict(states), _named(self._local)
        fresh = [type(c).__name__ for name, c in named if _is_unknown(c) or name not in known]
        if fresh:
            self._report.warn(
                f"these callbacks start from scratch, no checkpoint holds their state: "
                f"{', '.join(fresh)}; give them get_state() and set_state(state)"
            )

    def restore(self, states: list[Any], arrays: list[np.ndarray]) -> None:
        """Give the callbacks of this task the state that `state` returned."""
        known = dict(states)
        for name, callback in _named(self._local):
            if name in known:
                _set_state(callback, _decode(known[name], arrays))


def _append_to_log(logger: kc.CSVLogger, epochs: int) -> None:
    """Have a CSVLogger continue its file after ``epochs`` without later rows."""
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


def _named(callbacks: list[kc.Callback]) -> list[tuple[str, kc.Callback]]:
    """Return callbacks with unique names: the class and a number."""
    count: Counter[str] = Counter()
    named = []
    for callback in callbacks:
        name = type(callback).__name__
        count[name] += 1
        named.append((f"{name}-{count[name]}", callback))
    return named


def logs_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return the logs of an epoch's record as callbacks get them, with arrays instead of lists."""
    logs = record["logs"].items()
    return {name: np.array(value) if isinstance(value, list) else value for name, value in logs}


def _get_state(callback: kc.Callback) -> Any:
    if _returns_state(callback):
        return from_user(f"get_state() of {type(callback).__name__}", callback.get_state)
    return {name: getattr(callback, name, None) for name in _state_attributes(callback)}


def _set_state(callback: kc.Callback, state: Any) -> None:
    if _returns_state(callback):
        give: Callable[[], Any] = lambda: callback.set_state(state)  # noqa: E731
        from_user(f"set_state() of {type(callback).__name__}", give)
        return
    for name in _state_attributes(callback):
        if name in state:
            setattr(callback, name, state[name])


def _state_attributes(callback: kc.Callback) -> tuple[str, ...]:
    return next(
        (names for kind, names in STATE_ATTRIBUTES.items() if isinstance(callback, kind)), ()
    )


def _returns_state(callback: kc.Callback) -> bool:
    return all(callable(getattr(callback, name, None)) for name in ("get_state", "set_state"))


def _is_unknown(callback: kc.Callback) -> bool:
    """Return whether a callback may have state that it does not return."""
    kinds = (*STATE_ATTRIBUTES, *_STATELESS)
    return not _returns_state(callback) and type(callback) not in kinds


def _encode(value: Any, arrays: list[np.ndarray]) -> Any:
    """Return a state as JSON values, with its arrays in a list.

    A dict becomes ``{"dict": ...}``, which distinguishes it from an encoded array.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [_encode(part, arrays) for part in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _encode(part, arrays) for key, part in value.items()}}
    if keras.ops.is_tensor(value) or isinstance(value, (np.ndarray, keras.Variable)):
        array = keras.ops.convert_to_numpy(value)
        if array.dtype != object:
            arrays.append(array)
            return {"array": len(arrays) - 1}
    raise TypeError(f"a {type(value).__name__}")


def _decode(value: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_decode(part, arrays) for part in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    return {key: _decode(part, arrays) for key, part in value["dict"].items()}


def has_hook(callback: kc.Callback, hooks: tuple[str, ...]) -> bool:
    """Return whether a callback needs single batches."""
    base: type[kc.Callback] = kc.Callback
    for kind in (kc.ModelCheckpoint, kc.BackupAndRestore):
        if isinstance(callback, kind) and callback.save_freq == "epoch":
            base = kind  # whose hooks do nothing then
    if type(callback) is kc.TensorBoard and callback.update_freq == "epoch":
        return keras_compat.traces_batches(callback) or callback.write_steps_per_second
    changed = (getattr(type(callback), hook) is not getattr(base, hook) for hook in hooks)
    return any(changed) or any(hook in vars(callback) for hook in hooks)


def _check_supported(callbacks: list[kc.Callback], replicas: int) -> None:
    orbax = getattr(kc, "OrbaxCheckpoint", ())  # not in every version
    if replicas > 1 and any(isinstance(callback, orbax) for callback in callbacks):
        raise ModelError(
            "OrbaxCheckpoint reads the metrics of all replicas, so it would have to run on every "
            "task, and all would write the same folder: use ModelCheckpoint, which the chief "
            "writes, or leave it out, as every run resumes from its own checkpoints"
        )
    if any(getattr(callback, "swap_on_epoch", False) for callback in callbacks):
        raise ModelError(
            "SwapEMAWeights(swap_on_epoch=True) would put averages instead of the weights into "
            "checkpoints: leave swap_on_epoch out"
        )
