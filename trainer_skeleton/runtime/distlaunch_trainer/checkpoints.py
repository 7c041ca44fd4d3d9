"""Checkpoints, from which a run goes on. Only the chief writes.

A checkpoint is a folder ``step-00000120`` with the values of all variables and, written last, a
``checkpoint.json`` with the step, the order of the data and the checksum of the values. A
folder without it is an unfinished save. What lies there is never written over: a second checkpoint
of a step is ``step-00000120-2``, and takes the first one's place once it is whole.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import time
from concurrent import futures
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from .errors import StorageError
from .report import Report
from .storage import (
    explained,
    join,
    make_new_folder,
    names_in,
    new_file,
    read_if_there,
    read_whole,
    remove_files,
    write_whole,
)

KEPT = 3
_MANIFEST = "checkpoint.json"
_VALUES = "values.npz"
_NAME = re.compile(r"step-(\d+)(?:-(\d+))?$")
# What the training may wait for a checkpoint: a moment, or a share of the time since the last one.
_MOMENT_SECONDS = 0.1
_SHARE = 0.02
_LAST_WRITE_SECONDS = 60.0


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
    shard_policy
        The value of ``--shard-policy``.
    callbacks
        What the callbacks had counted; their arrays stand behind the values of the variables.
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
    callbacks: list[Any] = field(default_factory=list)
    shard_policy: str = "auto"


class Checkpoints(AbstractContextManager):
    """The checkpoints of a job folder.

    As a context manager they give a write under way some time to end before an error goes on.
    """

    def __init__(self, folder: str, report: Report) -> None:
        self._folder = folder
        self._report = report
        self._writer = futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: futures.Future[None] | None = None
        self._saved = time.monotonic()
        self._seconds = 0.0

    def __exit__(self, *_: object) -> None:
        self.finish(_LAST_WRITE_SECONDS)

    def save(self, progress: Progress, values: list[np.ndarray]) -> None:
        """Write a checkpoint, after the one before is written.

        It is waited for a moment, or for a small share of the time since the one before, so that a
        kill costs no more than the steps since it; but not at all where the last write took longer
        than that: the training then goes on beside it.

        Raises
        ------
        StorageError
            If this one or the one before could not be written.
        """
        self.wait()
        little = max(_MOMENT_SECONDS, _SHARE * (time.monotonic() - self._saved))
        self._pending = self._writer.submit(self._write, progress, values)
        if self._seconds <= little and self.finish(little):
            self.wait()
        self._saved = time.monotonic()

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

    def finish(self, seconds: float) -> bool:
        """Wait so long at most for the last checkpoint; return whether its write has ended.

        It raises nothing: `wait` raises if the write failed.
        """
        under_way = [] if self._pending is None else [self._pending]
        return not futures.wait(under_way, seconds).not_done

    def newest(self) -> tuple[Progress, list[np.ndarray]] | None:
        """Return the newest whole checkpoint, or None where there is none at all.

        Raises
        ------
        StorageError
            If there are checkpoints and each of them is damaged.
        """
        is_damaged = False
        for name in reversed(list(self._names)):
            try:
                checkpoint = self._read(name)
            except StorageError as problem:
                self._report.warn(f"{problem}; trying the checkpoint before it")
                checkpoint, is_damaged = None, True
            if checkpoint is not None:
                return checkpoint
            self._names.remove(name)
            self._names.insert(0, name)
        if is_damaged:
            raise StorageError(
                f"every checkpoint in {self._folder} is damaged: --no-resume starts from scratch"
            )
        return None

    def clear(self) -> None:
        """Remove all checkpoints."""
        for name in list(self._names):
            self._remove(name)

    @cached_property
    def _names(self) -> list[str]:
        """The checkpoints, what is to go first being first: listed once, as no one else writes."""
        return sorted((name for name in names_in(self._folder) if _NAME.match(name)), key=_order)

    def _write(self, progress: Progress, values: list[np.ndarray]) -> None:
        began = time.monotonic()
        name = _name_beside(self._names, progress.step)
        place = join(self._folder, name)
        make_new_folder(place)
        try:
            manifest = {
                "progress": asdict(progress),
                "types": [value.dtype.name for value in values],
                "sha256": _write_values(place, values),
            }
            write_whole(join(place, _MANIFEST), json.dumps(manifest).encode())
        except StorageError:
            with suppress(StorageError):
                remove_files(place, _MANIFEST, _VALUES)
            raise
        self._report.event("checkpoint", step=progress.step, path=place)
        self._replace_by(name)
        self._seconds = time.monotonic() - began

    def _replace_by(self, name: str) -> None:
        """Count a checkpoint in, and remove those of its step and those that are too many."""
        same_step = [old for old in self._names if _order(old)[0] == _order(name)[0]]
        others = [old for old in self._names if old not in same_step]
        self._names.append(name)
        for old in (*same_step, *others[: -(KEPT - 1)]):
            self._remove(old)

    def _read(self, name: str) -> tuple[Progress, list[np.ndarray]] | None:
        place = join(self._folder, name)
        text = read_if_there(join(place, _MANIFEST))
        if text is None:
            return None
        data = read_whole(join(place, _VALUES))
        try:
            manifest = json.loads(text)
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
        remove_files(join(self._folder, name), _MANIFEST, _VALUES)
        self._names.remove(name)


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


def _write_values(place: str, values: list[np.ndarray]) -> str:
    """Write the values into the checkpoint's folder; return their checksum."""
    with explained("cannot write", place), new_file(join(place, _VALUES)) as file:
        summed = _Summed(file)
        np.savez(summed, **{str(n): _storable(value) for n, value in enumerate(values)})
    return summed.sha256.hexdigest()


class _Summed(io.RawIOBase):
    """A file to write in one go that takes the checksum on the way."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        self._file.write(data)
        return len(data)
