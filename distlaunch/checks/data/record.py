"""`.distlaunch/data.json`: what the trainer's data were when it last ran on this machine.

The trainer writes what its data were into ``summary.json``. After a local run the launcher keeps
that in the project, so that `check` knows files and examples without running the project's code:

    {"source": "trainer/data.py",
     "sha256": "<of that file>",
     "training": {"kind": "records",              # or "arrays", or "dataset" (a tf.data.Dataset)
                  "examples": 1437,
                  "pattern": "/home/me/digits/data/train-*.tfrecord",              # records only
                  "files": [{"path": "…", "bytes": 45313, "modified_ns": 17…, "examples": 401}],
                  "batch": 60},                   # datasets only: the global batch
     "validation": null}                          # as training; null without

The record is valid while ``data.py`` has this hash and the local files that match the pattern have
these sizes and modification times. Files in a bucket are taken to be unchanged.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os.path
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILE_NAME = ".distlaunch/data.json"

_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9.+-]*://|/gcs/")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A TFRecord file."""

    path: str
    size: int
    modified_ns: int
    examples: int


@dataclass(frozen=True, slots=True)
class DatasetRecord:
    """The training or the validation data.

    Parameters
    ----------
    batch
        The global batch of a ``tf.data.Dataset``; None for records and arrays, which the trainer
        batches.
    """

    kind: Literal["records", "arrays", "dataset"]
    examples: int
    batch: int | None
    pattern: str
    files: tuple[DataFile, ...]

    @property
    def is_local(self) -> bool:
        """Whether it is read from files of this machine."""
        return bool(self.pattern) and _REMOTE.match(self.pattern) is None


@dataclass(frozen=True, slots=True)
class DataRecord:
    """What the data were in the last local run."""

    training: DatasetRecord
    validation: DatasetRecord | None


class DataUnknown(Exception):
    """Why there is no valid record."""


def save(project: Path, module: str, summary: Mapping[str, Any]) -> None:
    """Keep the data of a local run, if its summary has them.

    Parameters
    ----------
    module
        The module that ran, such as ``trainer.task``.
    summary
        The content of its ``summary.json``.
    """
    source = project.joinpath(*module.split(".")[:-1], "data.py")
    data = summary.get("data")
    if not isinstance(data, dict) or not source.is_file():
        return
    record = {"source": source.relative_to(project).as_posix(), "sha256": _sha256(source), **data}
    path = project / FILE_NAME
    with suppress(OSError):  # `check` reports unknown data then
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def load(project: Path, source: Path) -> DataRecord:
    """Return the record of a project's data.

    Parameters
    ----------
    source
        The project's ``data.py``.

    Raises
    ------
    DataUnknown
        If there is no record, or it is out of date.
    """
    name = source.relative_to(project).as_posix()
    try:
        content = json.loads((project / FILE_NAME).read_bytes())
        is_current = content["source"] == name and content["sha256"] == _sha256(source)
        training = _dataset(content["training"])
        validation = content["validation"] and _dataset(content["validation"])
    except FileNotFoundError:
        raise DataUnknown("no local run yet") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise DataUnknown(f"{FILE_NAME} cannot be read") from None
    if not is_current:
        raise DataUnknown(f"{name} has changed since the last local run")
    for dataset in filter(None, (training, validation)):
        if dataset.is_local and _files_now(project, dataset.pattern) != _files_then(
            project, dataset
        ):
            raise DataUnknown(f"files of {dataset.pattern} have changed since the last local run")
    return DataRecord(training, validation)


def _dataset(content: Mapping[str, Any]) -> DatasetRecord:
    files = tuple(
        DataFile(file["path"], file["bytes"], file["modified_ns"], file["examples"])
        for file in content.get("files", ())
    )
    pattern = content.get("pattern", "")
    return DatasetRecord(content["kind"], content["examples"], content.get("batch"), pattern, files)


def _files_now(project: Path, pattern: str) -> set[tuple[str, int, int]]:
    paths = (project / path for path in glob.glob(pattern, root_dir=project))  # noqa: PTH207
    visible = [path for path in paths if not path.name.startswith(".")]
    with suppress(OSError):
        stats = [(path, path.stat()) for path in visible]
        return {(os.path.normpath(path), at.st_size, at.st_mtime_ns) for path, at in stats}
    return set()


def _files_then(project: Path, dataset: DatasetRecord) -> set[tuple[str, int, int]]:
    return {
        (os.path.normpath(project / file.path), file.size, file.modified_ns)
        for file in dataset.files
    }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
