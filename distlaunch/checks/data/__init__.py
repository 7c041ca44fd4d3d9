"""The data of the bundled trainer against the cluster.

What the data are comes from the ``summary.json`` of the newest local run, and what the cluster
makes of them from the trainer's own arithmetic (`sharding`). A summary holds while the modules
beside the program are those that the run had, and the local files that match a pattern have the
same sizes and modification times. Files in a bucket are taken to be unchanged.
"""

from __future__ import annotations

import glob
import hashlib
import os.path
import posixpath
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch import summary
from distlaunch.checks.data import sharding
from distlaunch.checks.data.sharding import DataPlan
from distlaunch.checks.problem import Problem, error, warning
from distlaunch.checks.project.image_runtime import tensorflow_tag
from distlaunch.files import read_regular
from distlaunch.paths import CHECKED, LOCAL_JOBS, SEARCHES
from distlaunch.summary import Summary
from distlaunch.text import plural

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Collection, Mapping

    from distlaunch.checks.data.sharding import TrainingMachines
    from distlaunch.checks.project.image_runtime import ImageRuntime
    from distlaunch.checks.trainer import Trainer
    from distlaunch.job.launch import LaunchRequest
    from distlaunch.job.vertex.view import JobRequest

__all__ = ["DataPlan", "check_data"]

_HOMES = ("/Users/", "/home/", "/root/")
_WILDCARD = re.compile(r"[*?\[]")
# The options of the arithmetic; a problem of one begins with its name.
_OPTIONS = ("--batch-size", "--global-batch-size", "--shards", "--steps-per-epoch")
# The data may be other ones in the cloud where data.py looks at its surroundings.
_MAY_DIFFER = re.compile(r"\b(environ|getenv|argv|exists|is_dir|is_file)\b")
_TRAINER_IMPORT = re.compile(r"\bdistlaunch_trainer\b")  # Records, Arrays
_NOT_OF_DATA = ("model.py", "task.py")  # modules beside data.py
_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9.+-]*://|/gcs/")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A TFRecord file."""

    path: str
    size: int
    modified_ns: int
    examples: int


@dataclass(frozen=True, slots=True)
class Dataset:
    """The training or the validation data, as the trainer wrote them into ``summary.json``."""

    kind: str  # arrays, csv, images, records, tfds; a user's: dataset
    examples: int | None = None  # None if the trainer has not counted them
    batch: int | None = None  # the global batch of a dataset
    pattern: str = ""  # of records and CSV files
    files: tuple[DataFile, ...] = ()  # of records

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> Dataset:
        """Read a part of ``data``; an error that Python raises is raised if it is damaged."""
        files = [
            DataFile(each["path"], each["bytes"], each["modified_ns"], each["examples"])
            for each in content.get("files", ())
        ]
        pattern, batch = content.get("pattern", ""), content.get("batch")
        return cls(content["kind"], content["examples"], batch, pattern, tuple(files))

    @property
    def is_local(self) -> bool:
        """Whether it is read from files of this machine."""
        return bool(self.pattern) and _REMOTE.match(self.pattern) is None

    def is_unchanged(self, project: Path, run_ended_ns: int) -> bool:
        """Whether its pattern matches the same files, with the same sizes and times.

        Of data other than records no files are recorded: none may be newer than the run.
        """
        current = set()
        for match in glob.glob(self.pattern, root_dir=project):  # noqa: PTH207
            path = Path(os.path.normpath(project / match))
            if not path.name.startswith("."):
                with suppress(OSError):
                    stat = path.stat()
                    current.add((path, stat.st_size, stat.st_mtime_ns))
        if self.kind != "records":
            return all(modified <= run_ended_ns for _, _, modified in current)
        return current == {
            (Path(os.path.normpath(project / file.path)), file.size, file.modified_ns)
            for file in self.files
        }


def load_datasets(project: Path, source: Path) -> tuple[dict[str, Dataset], str]:
    """Return the ``training`` and ``validation`` data of the newest run that recorded them.

    Without, and if the project has changed since, there are none, and the reason is returned.
    """
    runs_here = (project / LOCAL_JOBS).glob(f"*/{summary.FILE_NAME}")
    trials_here = (project / SEARCHES).glob(f"*/*/{summary.FILE_NAME}")
    paths = [*runs_here, *trials_here, project / CHECKED]
    paths.sort(key=lambda path: -path.stat().st_mtime if path.is_file() else 0.0)
    runs = ((path, Summary.parse(summary.read(path))) for path in paths)
    recorded = ((path, run) for path, run in runs if run.data and run.data_modules)
    path, run = next(recorded, (source, Summary()))
    try:
        is_current = run.data_modules == hash_modules(source)
        datasets = {name: Dataset.parse(part) for name, part in run.data.items() if part}
    except (AttributeError, KeyError, OSError, TypeError, ValueError):  # damaged, or a FIFO
        is_current, datasets = False, {}
    if "training" not in datasets:
        return {}, f"not recorded by a run in {LOCAL_JOBS} yet"
    if not is_current:
        name = source.relative_to(project).as_posix()
        return {}, f"{name} or a module beside it has changed since the last local run"
    for dataset in datasets.values():
        if dataset.is_local and not dataset.is_unchanged(project, path.stat().st_mtime_ns):
            return {}, f"files of {dataset.pattern} have changed since the last local run"
    return datasets, ""


def hash_modules(source: Path) -> str:
    """Return the hash of a ``data.py`` and the modules beside it, as the trainer computes it."""
    digest = hashlib.sha256()
    for path in sorted(source.parent.glob("*.py")):
        if path.name not in _NOT_OF_DATA:
            digest.update(path.name.encode() + b"\0" + read_regular(path))
    return digest.hexdigest()


def check_data(
    launch: LaunchRequest,
    request: JobRequest,
    trainer: Trainer | None,
    included: Collection[str],
    runtime: ImageRuntime | None,
) -> tuple[DataPlan | None, list[Problem]]:
    """Return what is known of a job's data, and their problems.

    `included` are the project's files in the image, as POSIX paths relative to its folder. A
    `runtime` of None is a machine that shares the file system of this one, with a copy of them.
    """
    path = trainer.folder / "data.py" if trainer else None
    if trainer is None or path is None or not path.is_file():
        return None, []
    text = path.read_text(encoding="utf-8", errors="replace")
    source = path.relative_to(launch.folder).as_posix()
    location = DataLocation(launch, source, text, frozenset(included), runtime)
    datasets, unknown = load_datasets(launch.folder, path)
    problems = [*filter(None, map(location.problem, datasets.values()))]
    plan, machines = None, sharding.training_machines(request)
    if machines and _is_predictable(launch, trainer):
        training = datasets.get("training")
        plan = _data_plan(training, machines, trainer.options, location, unknown)
        problems += sharding.problems(plan, trainer.options, machines, source)
        for name, dataset in datasets.items():
            examples = _examples(dataset, location)
            if examples is not None:
                problems += sharding.example_problems(name, examples, machines, source)
    return plan, _with_severity(problems, location)


def _is_predictable(launch: LaunchRequest, trainer: Trainer) -> bool:
    """Whether each option of the arithmetic has one value, for all trials of a tuned job."""
    tuned = {f"--{name}" for name in launch.job.tuning.parameters} if launch.job.tuning else set()
    is_refused = any(problem.what.startswith(_OPTIONS) for problem in trainer.problems)
    return tuned.isdisjoint(_OPTIONS) and not is_refused


def _with_severity(problems: list[Problem], location: DataLocation) -> list[Problem]:
    """Turn errors about the data into warnings where the data may be other ones in the cloud."""
    if not _MAY_DIFFER.search(location.text):
        return problems
    return [
        replace(problem, severity="warning") if problem.where == location.source else problem
        for problem in problems
    ]


def _data_plan(
    training: Dataset | None,
    machines: TrainingMachines,
    options: Namespace,
    location: DataLocation,
    unknown: str,
) -> DataPlan:
    replicas, steps = machines.replicas, options.steps_per_epoch
    batch = options.global_batch_size or (options.batch_size or sharding.BATCH) * replicas
    shards = options.shards or sharding.SHARDS
    if training is None:
        is_sharded = _TRAINER_IMPORT.search(location.text) is not None
        batch, shards = (batch, shards) if is_sharded else (None, None)
        return DataPlan(replicas, batch, shards, requested_steps=steps, unknown=unknown)
    if training.kind == "dataset":
        batch, shards = training.batch, None
    examples, files = _examples(training, location), len(location.files(training))
    return DataPlan(replicas, batch, shards, examples, steps, files or None)


def _examples(dataset: Dataset, location: DataLocation) -> int | None:
    files = location.files(dataset)
    if files == dataset.files:
        return dataset.examples
    return sum(file.examples for file in files)


@dataclass(frozen=True, slots=True)
class DataLocation:
    """The files of a project's data, here and in its container.

    `source` is the path of ``data.py`` in the project, and `text` its content: only a path that is
    written there is sure to be the same in the container. `included` are the files in the image.
    """

    launch: LaunchRequest
    source: str
    text: str
    included: frozenset[str]
    runtime: ImageRuntime | None  # None for machines that share this one's file system

    def files(self, dataset: Dataset) -> tuple[DataFile, ...]:
        """Return the files that the container has; all of them where that is not known."""
        is_outside = self.runtime is None and dataset.pattern.startswith("/")
        if is_outside or self._is_unknown or not dataset.is_local:
            return dataset.files
        return tuple(filter(self._is_included, dataset.files)) or dataset.files

    def problem(self, dataset: Dataset) -> Problem | None:
        """Return why the container has no file of a dataset."""
        if not dataset.is_local or self._is_unknown:
            return None
        if self.runtime is None and dataset.pattern.startswith("/"):
            return None
        folder = posixpath.dirname(_WILDCARD.split(dataset.pattern, maxsplit=1)[0])
        is_absolute = dataset.pattern.startswith("/")
        is_written = is_absolute and (folder in self.text or str(self.launch.folder) in self.text)
        if is_written or not all(map(self._paths_in_project, dataset.files)):
            return self._on_this_machine(dataset.pattern, folder, is_written=is_written)
        if not dataset.files or any(map(self._is_included, dataset.files)):
            return None
        return self._not_in_image(dataset)

    @property
    def _is_unknown(self) -> bool:
        """Whether the files in the image are not known."""
        return self.runtime is not None and self.runtime.own is not None

    def _paths_in_project(self, file: DataFile) -> list[str]:
        """Return a file's paths in the project: as read, and with symlinks resolved."""
        folder = self.launch.folder
        path = Path(os.path.normpath(folder / file.path))
        pairs = [(folder, path), (Path(os.path.realpath(folder)), Path(os.path.realpath(path)))]
        return [
            file.relative_to(root).as_posix() for root, file in pairs if file.is_relative_to(root)
        ]

    def _is_included(self, file: DataFile) -> bool:
        return not self.included.isdisjoint(self._paths_in_project(file))

    def _on_this_machine(self, pattern: str, folder: str, *, is_written: bool) -> Problem:
        base = self.runtime.base if self.runtime else None
        is_plain = self.runtime is not None and self.runtime.is_plain
        is_known_base = is_plain or tensorflow_tag(base) is not None
        report = error if is_written and (is_known_base or folder.startswith(_HOMES)) else warning
        target = f"{self.launch.job.bucket or 'gs://BUCKET'}/{self.launch.job.name}/data"
        quoted = f'"{pattern}"' if " " in pattern else pattern
        what = f"{pattern} is a path of this machine, which the container does not have"
        remedy = f"copy the files with 'gcloud storage cp {quoted} {target}/', and read "
        remedy += f"{target}/{posixpath.basename(pattern)}"
        return report("data-on-this-machine", self.source, what, remedy)

    def _not_in_image(self, dataset: Dataset) -> Problem:
        paths = [self._paths_in_project(file)[-1] for file in dataset.files]
        folder = posixpath.commonpath([posixpath.dirname(path) for path in paths]) or paths[0]
        if self.runtime and self.runtime.own_ignore:
            remedy = f"add a line !{folder} at the end of .dockerignore"
        else:
            include = ", ".join([*self.launch.job.image.include, folder])
            remedy = f"set image.include: [{include}] in distlaunch.yaml"
        what = (
            f"{plural(len(paths), 'file')} in {folder} that the trainer reads, and none of them is "
        )
        remedy += f", or read them from a bucket (gs://BUCKET/{folder})"
        return error("data-not-in-image", self.source, f"{what}in the image", remedy)
