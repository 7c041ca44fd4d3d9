"""Whether the container has the files that the trainer read on this machine."""

from __future__ import annotations

import os.path
import posixpath
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch.checks.problem import Problem, error, warning
from distlaunch.checks.project.image_runtime import tensorflow_tag
from distlaunch.text import plural

if TYPE_CHECKING:
    from distlaunch.checks.data.record import DataFile, DatasetRecord
    from distlaunch.checks.project.image_runtime import ImageRuntime
    from distlaunch.submit.plan import LaunchRequest

_HOMES = ("/Users/", "/home/", "/root/")
_WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class DataLocation:
    """The files of a project's data, here and in its container.

    `source` is the path of ``data.py`` in the project, and `text` its content: only a path that is
    written there is sure to be the same in the container. `included` are the files in the image.
    """

    order: LaunchRequest
    source: str
    text: str
    included: frozenset[str]
    runtime: ImageRuntime

    def files(self, dataset: DatasetRecord) -> tuple[DataFile, ...]:
        """Return the files that the container has; all of them where that is not known."""
        if self.runtime.own or not dataset.is_local:
            return dataset.files
        return tuple(filter(self._is_included, dataset.files)) or dataset.files

    def problem(self, dataset: DatasetRecord) -> Problem | None:
        """Return why the container has no file of a dataset."""
        if not dataset.is_local or self.runtime.own:
            return None
        folder = posixpath.dirname(_WILDCARD.split(dataset.pattern, maxsplit=1)[0])
        is_absolute = dataset.pattern.startswith("/")
        is_written = is_absolute and (folder in self.text or str(self.order.folder) in self.text)
        if is_written or not all(map(self._paths_in_project, dataset.files)):
            return self._on_this_machine(dataset.pattern, folder, is_written=is_written)
        if any(map(self._is_included, dataset.files)):
            return None
        return self._not_in_image(dataset)

    def _paths_in_project(self, file: DataFile) -> list[str]:
        """Return a file's paths in the project: as read, and with symlinks resolved."""
        folder = self.order.folder
        path = Path(os.path.normpath(folder / file.path))
        pairs = [(folder, path), (Path(os.path.realpath(folder)), Path(os.path.realpath(path)))]
        return [
            file.relative_to(root).as_posix() for root, file in pairs if file.is_relative_to(root)
        ]

    def _is_included(self, file: DataFile) -> bool:
        return not self.included.isdisjoint(self._paths_in_project(file))

    def _on_this_machine(self, pattern: str, folder: str, *, is_written: bool) -> Problem:
        has_plain_base = self.runtime.is_plain or tensorflow_tag(self.runtime.base) is not None
        is_sure = is_written and (has_plain_base or folder.startswith(_HOMES))
        target = f"{self.order.job.bucket or 'gs://BUCKET'}/{self.order.job.name}/data"
        quoted = f'"{pattern}"' if " " in pattern else pattern
        report = error if is_sure else warning
        return report(
            "data-on-this-machine",
            self.source,
            f"{pattern} is a path of this machine, which the container does not have",
            f"copy the files with 'gcloud storage cp {quoted} {target}/', and read "
            f"{target}/{posixpath.basename(pattern)}",
        )

    def _not_in_image(self, dataset: DatasetRecord) -> Problem:
        paths = [self._paths_in_project(file)[-1] for file in dataset.files]
        folder = posixpath.commonpath([posixpath.dirname(path) for path in paths]) or paths[0]
        if self.runtime.own_ignore:
            remedy = f"add a line !{folder} at the end of .dockerignore"
        else:
            include = ", ".join([*self.order.job.image.include, folder])
            remedy = f"set image.include: [{include}] in distlaunch.yaml"
        return error(
            "data-not-in-image",
            self.source,
            f"{plural(len(paths), 'file')} in {folder} that the trainer reads, and none of them is "
            "in the image",
            f"{remedy}, or read them from a bucket (gs://BUCKET/{folder})",
        )
