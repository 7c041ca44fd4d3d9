"""Checkpoints, from which a run goes on, and the finished model. Only the chief writes.

A checkpoint is a folder ``step-00000120`` with the values of all variables and, written last, a
``checkpoint.json`` that tells the step, the order of the data and the checksum of the values. A
folder without it is an unfinished save. What lies there is never written over: a second checkpoint
of a step is ``step-00000120-2``, and takes the first one's place once it is whole.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import keras
import ml_dtypes
import numpy as np
import tensorflow as tf

from .errors import StorageError, TrainerError, gist
from .report import Report
from .storage import explained, join, names_in, publish, read_whole, remove, scratch_folder

KEPT = 3
_MANIFEST = "checkpoint.json"
_VALUES = "values.npz"
_MODEL_LAST = "saved_model.pb"
_NAME = re.compile(r"step-(\d+)(?:-(\d+))?$")


@dataclass(frozen=True)
class Progress:
    """How far a run has come, and what must stay the same for it to go on.

    Attributes
    ----------
    step
        Global steps done.
    examples, global_batch, shards, seed, shuffle, steps_per_epoch
        The order of the data.
    precision
        The value of ``--precision``.
    learning_rate
        The value of ``--learning-rate``, if one was given.
    history
        The records of the epochs done.
    stopped
        Whether a callback has ended the training.
    """

    step: int
    examples: int
    global_batch: int
    shards: int
    seed: int
    shuffle: int
    steps_per_epoch: int
    precision: str
    learning_rate: float | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    stopped: bool = False


class Checkpoints:
    """The checkpoints of a job folder."""

    def __init__(self, folder: str, report: Report) -> None:
        self._folder = folder
        self._report = report
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def save(self, progress: Progress, values: list[np.ndarray]) -> None:
        """Write a checkpoint while the training goes on, after the one before is written.

        Raises
        ------
        StorageError
            If the one before could not be written.
        """
        self.wait()
        self._pending = self._writer.submit(self._write, progress, values)

    def wait(self) -> None:
        """Return when the last checkpoint is written.

        Raises
        ------
        StorageError
            If it could not be written; the ones before are kept.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def newest(self) -> tuple[Progress, list[np.ndarray]] | None:
        """Return the newest whole checkpoint, or None where there is none at all.

        Raises
        ------
        StorageError
            If there are checkpoints and each of them is damaged.
        """
        damaged = []
        for name in reversed(self._names()):
            try:
                found = self._read(name)
            except StorageError as problem:
                self._report.warn(f"{problem}; trying the checkpoint before it")
                damaged.append(name)
                continue
            if found is not None:
                return found
        if damaged:
            raise StorageError(
                f"every checkpoint in {self._folder} is damaged: --no-resume starts anew"
            )
        return None

    def clear(self) -> None:
        """Remove all checkpoints."""
        for name in self._names():
            self._remove(name)

    def _names(self) -> list[str]:
        names = [name for name in names_in(self._folder) if _NAME.match(name)]
        return sorted(names, key=_order)

    def _write(self, progress: Progress, values: list[np.ndarray]) -> None:
        before = self._names()
        name = _name_beside(before, progress.step)
        place = join(self._folder, name)
        with scratch_folder(self._folder) as folder:
            with explained("cannot write", place):
                with (folder / _VALUES).open("wb") as file:
                    np.savez(file, **{str(n): _storable(v) for n, v in enumerate(values)})
                manifest = {
                    "progress": asdict(progress),
                    "types": [v.dtype.name for v in values],
                    "sha256": _sha256(folder / _VALUES),
                }
                (folder / _MANIFEST).write_text(json.dumps(manifest))
            publish(folder, place, last=_MANIFEST)
        self._report.event("checkpoint", step=progress.step, path=place)
        replaced = [old for old in before if _order(old)[0] == progress.step]
        others = [old for old in before if old not in replaced]
        for old in (*replaced, *others[: -(KEPT - 1)]):
            self._remove(old)

    def _read(self, name: str) -> tuple[Progress, list[np.ndarray]] | None:
        place = join(self._folder, name)
        if _MANIFEST not in names_in(place):
            return None
        try:
            manifest = json.loads(read_whole(join(place, _MANIFEST)))
            data = read_whole(join(place, _VALUES))
            if hashlib.sha256(data).hexdigest() != manifest["sha256"]:
                raise ValueError("its values do not match their checksum")
            with np.load(io.BytesIO(data), allow_pickle=False) as stored:
                values = [
                    _restored(stored[str(n)], type_) for n, type_ in enumerate(manifest["types"])
                ]
            return Progress(**manifest["progress"]), values
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(f"the checkpoint {place} is damaged: {error}") from error

    def _remove(self, name: str) -> None:
        """Remove a checkpoint, first of all what makes it one."""
        remove(join(self._folder, name, _MANIFEST))
        remove(join(self._folder, name))


def _order(name: str) -> tuple[int, int]:
    """Return the step of a checkpoint's name, and which of that step's it is."""
    step, number = name.removeprefix("step-").partition("-")[::2]
    return int(step), int(number or 1)


def _name_beside(names: list[str], step: int) -> str:
    """Return a name for a checkpoint that none has yet."""
    numbers = [_order(name)[1] for name in names if _order(name)[0] == step]
    return f"step-{step:08d}" + (f"-{max(numbers) + 1}" if numbers else "")


def _storable(value: np.ndarray) -> np.ndarray:
    """Return a value as numpy's file format can hold it: bfloat16 and the like as their bytes."""
    return value if value.dtype.isbuiltin == 1 else value.view(f"u{value.dtype.itemsize}")


def _restored(stored: np.ndarray, name: str) -> np.ndarray:
    known = getattr(ml_dtypes, name, None)
    return stored if known is None else stored.view(known)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def is_saved(folder: str) -> bool:
    """Return whether a finished model lies in ``folder``."""
    return _MODEL_LAST in names_in(folder)


def save_model(model: keras.Model, folder: str) -> None:
    """Write the finished model: ``model.keras`` and a SavedModel, both loadable without this code.

    Raises
    ------
    StorageError
        If it cannot be written.
    TrainerError
        If Keras cannot save this model.
    """
    with scratch_folder(folder) as scratch:
        try:
            model.export(scratch, format="tf_saved_model", verbose=False)
            model.save(scratch / "model.keras")
        except (tf.errors.OpError, OSError) as error:
            raise StorageError(f"cannot write the model to {folder}: {gist(error)}") from error
        except (ValueError, TypeError, NotImplementedError) as error:
            raise TrainerError(f"Keras cannot save this model: {gist(error)}") from error
        publish(scratch, folder, last=_MODEL_LAST)
