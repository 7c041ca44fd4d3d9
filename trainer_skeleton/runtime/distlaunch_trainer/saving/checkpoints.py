"""Checkpoints, from which a run resumes. Only the chief writes.

A checkpoint is a folder ``step-00000120`` with ``values.npz``, the values of all variables by name,
and ``checkpoint.json``, which is written last: the training state, whose variables they are, the
format's version, and the checksums of both files. A folder without it is an unfinished save. No
checkpoint is overwritten: the second checkpoint of a step is ``step-00000120-2``; when it is
complete, the first is removed.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import time
import zipfile
import zlib
from collections.abc import Mapping
from concurrent import futures
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.errors import StorageError
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.task.storage import (
    explained,
    join,
    make_new_folder,
    names_in,
    new_file,
    read_if_there,
    read_whole,
    remove,
    write_whole,
)
from distlaunch_trainer.training_state import TrainingState

FORMAT = 5
"""Version of the format; others are not read."""

# The newest may be damaged, and an evaluator may be reading the one before.
MAX_TO_KEEP = 3
_MANIFEST = "checkpoint.json"
_VALUES = "values.npz"
_NAME = re.compile(r"step-(\d+)(?:-(\d+))?$")
# The training waits for a write for this long, or this fraction of the time since the last one.
_MIN_WAIT_SECONDS = 0.1
_MAX_WAIT_FRACTION = 0.02
# A storage that hangs must not keep the error from being reported.
_LAST_WRITE_SECONDS = 60.0


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint."""

    state: TrainingState
    model: Mapping[str, Any]  # whose variables these are, as `ModelState.describe` returns it
    values: Mapping[str, np.ndarray]  # by name, of any numeric type


def agreed_state(cluster: Cluster, state: TrainingState | None) -> TrainingState | None:
    """Return on every task the state of the chief's checkpoint."""
    data = json.dumps(asdict(state) if state else None).encode()
    stored = json.loads(cluster.broadcast_bytes(data))
    return TrainingState.of(stored) if stored else None


class Checkpoints(AbstractContextManager):
    """The checkpoints of a job folder.

    As a context manager it waits some time for a write in progress before it passes an error on.
    """

    def __init__(self, folder: str, report: Report) -> None:
        self.folder = folder
        self._report = report
        self._writer = futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: futures.Future[None] | None = None
        self._saved = time.monotonic()
        self._seconds = 0.0

    def __exit__(self, *_: object) -> None:
        self.wait_at_most(_LAST_WRITE_SECONDS)

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, when the previous one is written.

        The training waits for a short write only, so that a kill costs no more than the steps since
        this checkpoint; a longer write continues beside the training.
        """
        self.wait()
        since_last = time.monotonic() - self._saved
        allowance = max(_MIN_WAIT_SECONDS, _MAX_WAIT_FRACTION * since_last)
        self._pending = self._writer.submit(self._write, checkpoint)
        if self._seconds <= allowance and self.wait_at_most(allowance):
            self.wait()
        self._saved = time.monotonic()

    def wait(self) -> None:
        """Return when the last checkpoint is written, or raise what has prevented it."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def wait_at_most(self, seconds: float) -> bool:
        """Wait for the last checkpoint; return whether its write has ended.

        It raises nothing: `wait` raises if the write failed.
        """
        pending = [] if self._pending is None else [self._pending]
        return not futures.wait(pending, seconds).not_done

    def latest(self) -> Checkpoint | None:
        """Return the latest complete checkpoint, or None if there is none at all.

        StorageError is raised if all checkpoints are damaged, or one has another format.
        """
        is_damaged = False
        for name in reversed(list(self._names)):
            try:
                checkpoint = self.read(name)
            except _FormatError:
                raise
            except StorageError as error:
                self._report.warn(f"{error}; trying the checkpoint before it")
                checkpoint, is_damaged = None, True
            if checkpoint is not None:
                return checkpoint
            self._names.remove(name)
            self._names.insert(0, name)
        if is_damaged:
            raise StorageError(
                f"every checkpoint in {self.folder} is damaged: --no-resume starts from scratch"
            )
        return None

    def keep_newest(self) -> None:
        """Remove all checkpoints but the newest."""
        self.wait()
        for name in self._names[:-1]:
            self._remove(name)

    @property
    def newest(self) -> str | None:
        """The name of the checkpoint that `latest` returned or `save` wrote last, if any."""
        return self._names[-1] if self._names else None

    def listed(self) -> list[str]:
        """Return the names of the checkpoints that another task writes, the oldest first."""
        return sorted(filter(_NAME.match, names_in(self.folder)), key=_step_and_number)

    def is_complete(self, name: str) -> bool:
        """Return whether a checkpoint is completely written, and not removed."""
        return read_if_there(join(self.folder, name, _MANIFEST)) is not None

    def clear(self) -> None:
        """Remove all checkpoints."""
        for name in list(self._names):
            self._remove(name)

    @cached_property
    def _names(self) -> list[str]:
        """The checkpoints, the next to remove first; listed once, as only this process writes."""
        return self.listed()

    def _write(self, checkpoint: Checkpoint) -> None:
        started = time.monotonic()
        step = checkpoint.state.progress.step
        name = _unused_name(self._names, step)
        path = join(self.folder, name)
        make_new_folder(path)  # what another run has written is not overwritten
        try:
            crc32 = _write_values(path, checkpoint.values)
            manifest = {
                "format": FORMAT,
                "state": asdict(checkpoint.state),
                "model": checkpoint.model,
                "types": {key: value.dtype.name for key, value in checkpoint.values.items()},
                "values_crc32": crc32,
            }
            manifest["sha256"] = _digest(manifest)
            write_whole(join(path, _MANIFEST), json.dumps(manifest).encode())
        except StorageError:
            with suppress(StorageError):
                remove(path)
            raise
        self._report.event("checkpoint", step=step, path=path)
        self._replace_by(name)
        self._seconds = time.monotonic() - started

    def _replace_by(self, name: str) -> None:
        """Add a checkpoint; remove others of its step, and the oldest."""
        step, _ = _step_and_number(name)
        same_step = [old for old in self._names if _step_and_number(old)[0] == step]
        others = [old for old in self._names if old not in same_step]
        self._names.append(name)
        for old in (*same_step, *others[: -(MAX_TO_KEEP - 1)]):
            self._remove(old)

    def read(self, name: str) -> Checkpoint | None:
        """Return a checkpoint by the name of its folder, or None for an unfinished save.

        StorageError is raised if it is damaged or has another format.
        """
        path = join(self.folder, name)
        text = read_if_there(join(path, _MANIFEST))
        if text is None:
            return None
        try:
            manifest = json.loads(text)
            digest = manifest.pop("sha256", None)
            if digest is not None and digest != _digest(manifest):
                raise ValueError(f"the checksum of {_MANIFEST} is wrong")
            if (version := manifest.get("format", 1)) != FORMAT:
                raise _FormatError(
                    f"the checkpoint {path} has format {version}, this trainer reads format "
                    f"{FORMAT}: resume with the version of distlaunch that wrote it, or "
                    "--no-resume to start from scratch"
                )
            if digest is None:
                raise ValueError(f"{_MANIFEST} has no checksum")
            values = _read_values(path, manifest["types"], manifest["values_crc32"])
            return Checkpoint(TrainingState.of(manifest["state"]), manifest["model"], values)
        except (StorageError, MemoryError):
            raise
        except Exception as error:  # of json, numpy and zipfile, which raise many
            raise StorageError(f"the checkpoint {path} is damaged: {error}") from error

    def _remove(self, name: str) -> None:
        """Remove a checkpoint, its manifest first."""
        remove(join(self.folder, name, _MANIFEST))
        remove(join(self.folder, name))
        self._names.remove(name)


class _FormatError(StorageError):
    """A checkpoint was written by a version of the trainer with another format."""


def _digest(manifest: Mapping[str, Any]) -> str:
    """Return the checksum of a manifest's content, however it is written as JSON."""
    return hashlib.sha256(json.dumps(manifest).encode()).hexdigest()


def _step_and_number(name: str) -> tuple[int, int]:
    """Return the step of a checkpoint's name, and its number among those of that step."""
    step, number = name.removeprefix("step-").partition("-")[::2]
    return int(step), int(number or 1)


def _unused_name(names: list[str], step: int) -> str:
    """Return a name that no checkpoint has."""
    numbers = [_step_and_number(name)[1] for name in names if _step_and_number(name)[0] == step]
    return f"step-{step:08d}" + (f"-{max(numbers) + 1}" if numbers else "")


def _write_values(folder: str, values: Mapping[str, np.ndarray]) -> int:
    """Write arrays by name, as ``numpy.load`` reads them; return the CRC-32 of the file.

    A stronger checksum would take longer than to read the file, and only damages are looked for.
    """
    crc32 = 0
    with explained("cannot write", folder), new_file(join(folder, _VALUES)) as file:

        def write(data: Any) -> int:
            nonlocal crc32
            crc32 = zlib.crc32(data, crc32)
            file.write(data)  # a GFile returns no length
            return memoryview(data).nbytes

        # Without tell() it is written from its beginning to its end, as a bucket needs it. The
        # flush() of a GFile uploads all that was written.
        stream: Any = SimpleNamespace(write=write, flush=lambda: None)
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
            for name, value in values.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, _storable(value), allow_pickle=False)
    return crc32


def _read_values(folder: str, types: Mapping[str, str], crc32: int) -> dict[str, np.ndarray]:
    data = read_whole(join(folder, _VALUES))
    if zlib.crc32(data) != crc32:
        raise ValueError(f"the checksum of {_VALUES} is wrong")
    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        if set(stored.files) != set(types):
            raise ValueError(f"{_VALUES} and {_MANIFEST} have different variables")
        return {name: _restored(stored[name], type_name) for name, type_name in types.items()}


def _storable(value: np.ndarray) -> np.ndarray:
    """Return an array as numpy's file format can hold it: bfloat16 and the like as bytes."""
    return value if value.dtype.isbuiltin == 1 else value.view(f"u{value.dtype.itemsize}")


def _restored(stored: np.ndarray, type_name: str) -> np.ndarray:
    known = getattr(ml_dtypes, type_name, None)
    return stored if known is None else stored.view(known)
