"""The jobs of jobs.yaml: each changes one project, that of `init` with a cluster and names."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from distlaunch.checks.data import record

if TYPE_CHECKING:
    from collections.abc import Mapping

REGISTRY = "REGISTRY"  # replaced by the host of the tests' registry
JOB = f"""
name: digits
project: demo-project
region: us-central1
bucket: gs://demo-bucket
module: trainer.task
args: [--epochs=8]
image:
  repository: {REGISTRY}/training/digits
  base: python:3.12.12-slim-bookworm
  requirements: requirements.txt
  include: [data]
cluster:
  chief: {{machine: n1-standard-8}}
  workers: {{machine: n1-standard-8, count: 2}}
scheduling: {{strategy: STANDARD, timeout: 2h}}
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A job of the corpus.

    Parameters
    ----------
    job
        Merged into distlaunch.yaml, key by key; null removes a key.
    edits
        What is replaced in a file, and by what.
    files
        Files that are written.
    words
        Arguments of the command.
    google
        What is missing in the fake Google (arguments of `FakeGoogle`); None for an offline check.
    data
        The record of the training data; by default that of the starter's files.
    code, severity, where, remedy
        The problem, with parts of its location and remedy.
    also
        Codes that come with it.
    warned
        Codes of the warnings of a good job.
    message
        The error of a job that cannot be read.
    """

    job: Mapping[str, Any] = field(default_factory=dict)
    edits: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    google: Mapping[str, Any] | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""
    severity: str = "error"
    where: str = ""
    remedy: str = ""
    also: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()
    message: str = ""

    def write(self, folder: Path, registry: str, pristine: Path) -> Path:
        """Write the project into a new folder."""
        shutil.copytree(pristine, folder)
        job = yaml.safe_dump(_merged(yaml.safe_load(JOB), self.job))
        (folder / "distlaunch.yaml").write_text(job.replace(REGISTRY, registry))
        for name, (old, new) in self.edits.items():
            before = (folder / name).read_text()
            assert old in before, f"{name} has no {old!r}"
            (folder / name).write_text(before.replace(old, new))
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content.replace(REGISTRY, registry))
        source = folder / "trainer/data.py"
        if source.exists():
            training = self.data or _recorded(folder, "data/train-*.tfrecord", 1437)
            summary = {"data": {"training": training, "validation": None}}
            record.save(folder, source, record.hash_source(source), summary)
        return folder


@dataclass(frozen=True)
class Result:
    """The exit code and the output of a command."""

    code: int
    stdout: str
    stderr: str

    @property
    def report(self) -> dict[str, Any]:
        """The object of `check --json`."""
        assert self.stdout, self.stderr
        return json.loads(self.stdout)

    @property
    def problems(self) -> list[dict[str, str]]:
        return self.report["problems"]

    @property
    def codes(self) -> set[str]:
        return {problem["code"] for problem in self.problems}


def _cases(section: str) -> dict[str, Case]:
    corpus = yaml.safe_load(Path(__file__).with_name("jobs.yaml").read_text(encoding="utf-8"))
    return {name: Case(**fields) for name, fields in corpus[section].items()}


def _merged(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        if value is None:
            del merged[key]
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = _merged(merged[key], value)
        else:
            merged[key] = value
    return merged


def _recorded(folder: Path, pattern: str, examples: int) -> dict[str, Any]:
    """Return the record of files: 1 example in each but the first, which has the others."""
    stats = {path: path.stat() for path in sorted(folder.glob(pattern))}
    files = [
        {
            "path": str(path.relative_to(folder)),
            "bytes": stat.st_size,
            "modified_ns": stat.st_mtime_ns,
            "examples": 1 if index else examples - len(stats) + 1,
        }
        for index, (path, stat) in enumerate(stats.items())
    ]
    return {"kind": "records", "pattern": pattern, "files": files, "examples": examples}


BROKEN, GOOD, UNREADABLE = map(_cases, ("broken", "good", "unreadable"))
