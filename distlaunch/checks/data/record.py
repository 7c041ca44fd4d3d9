"""`.distlaunch/data.json`: what the trainer's data were when it last ran on this machine.

The trainer writes what its data were into ``summary.json``. After a local run the launcher keeps
that in the project, so that `check` knows files and examples without running the project's code:

    {"source": "trainer/data.py",
     "sha256": "<of data.py and the modules beside it, except model.py and task.py>",
     "training": {"kind": "records",              # arrays, csv, images, tfds; a user's: dataset
                  "examples": 1437,
                  "pattern": "/home/me/digits/data/train-*.tfrecord",              # records only
                  "files": [{"path": "…", "bytes": 45313, "modified_ns": 17…, "examples": 401}],
                  "batch": 60},                   # datasets only: the global batch
     "validation": null}                          # as training; null without

The record is valid while the modules have this hash and the local files that match the pattern have
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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch.files import atomic_write, make_folder, read_object, read_regular

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_NAME = ".distlaunch/data.json"

_OTHER_MODULES = ("model.py", "task.py")  # in the folder of data.py
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
    """The training or the validation data."""

    kind: str
    examples: int | None  # None if the trainer has not counted them
    batch: int | None  # the global batch of a dataset
    pattern: str
    files: tuple[DataFile, ...]

    @property
    def is_local(self) -> bool:
        """Whether it is read from files of this machine."""
        return bool(self.pattern) and _REMOTE.match(self.pattern) is None


class DataUnknown(Exception):
    """Why there is no valid record."""


def hash_source(source: Path) -> str | None:
    """Return the hash of a ``data.py`` and the modules beside it, None without a ``data.py``."""
    if not source.is_file():
        return None
    digest = hashlib.sha256()
    for path in sorted(source.parent.glob("*.py")):
        if path.name not in _OTHER_MODULES:
            digest.update(path.name.encode() + b"\0" + read_regular(path))
    return digest.hexdigest()


def save(project: Path, source: Path, source_hash: str | None, summary: Mapping[str, Any]) -> None:
    """Keep the data of a local run, if its ``summary.json`` has them.

    `source_hash` is that of `hash_source` before the run.
    """
    data = summary.get("data")
    if not isinstance(data, dict) or source_hash is None:
        return
    record = {"source": source.relative_to(project).as_posix(), "sha256": source_hash, **data}
    path = project / FILE_NAME
    with suppress(OSError):  # `check` reports unknown data then
        make_folder(path.parent, below=project)
        atomic_write(path, json.dumps(record, indent=1) + "\n")


def load(project: Path, source: Path) -> dict[str, DatasetRecord]:
    """Return the ``training`` data, and the ``validation`` data if there are any.

    DataUnknown is raised if there is no record, or if the project has changed since.
    """
    name = source.relative_to(project).as_posix()
    try:
        content = read_object(project / FILE_NAME)
        is_current = content["source"] == name and content["sha256"] == hash_source(source)
        datasets = {"training": _dataset(content["training"])}
        if content["validation"]:
            datasets["validation"] = _dataset(content["validation"])
    except FileNotFoundError:
        raise DataUnknown("not recorded by a local run yet") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise DataUnknown(f"{FILE_NAME} cannot be read") from None
    if not is_current:
        raise DataUnknown(f"{name} or a module beside it has changed since the last local run")
    for dataset in datasets.values():
        if dataset.is_local and not _is_unchanged(project, dataset):
            raise DataUnknown(f"files of {dataset.pattern} have changed since the last local run")
    return datasets


def _dataset(content: Mapping[str, Any]) -> DatasetRecord:
    files = tuple(
        DataFile(file["path"], file["bytes"], file["modified_ns"], file["examples"])
        for file in content.get("files", ())
    )
    pattern = content.get("pattern", "")
    return DatasetRecord(content["kind"], content["examples"], content.get("batch"), pattern, files)


def _is_unchanged(project: Path, dataset: DatasetRecord) -> bool:
    """Return whether a pattern matches the same files, with the same sizes and times."""
    current = set()
    for match in glob.glob(dataset.pattern, root_dir=project):  # noqa: PTH207
        path = Path(os.path.normpath(project / match))
        if not path.name.startswith("."):
            with suppress(OSError):
                stat = path.stat()
                current.add((path, stat.st_size, stat.st_mtime_ns))
    return current == {
        (Path(os.path.normpath(project / file.path)), file.size, file.modified_ns)
        for file in dataset.files
    }
