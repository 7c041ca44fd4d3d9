"""Jobs of a corpus: a project that is ready but for what a case changes, and what is said of it.

The project is the one that `init` makes, on a cluster and with names of its own. A case is run by
the command line, in this process: a process each would take minutes.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from distlaunch import scaffold
from distlaunch.checks.data import record

from . import running

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from distlaunch.checks.problem import Severity

REGISTRY = "REGISTRY"  # stands for the one of the tests
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
WITH_GPUS = """
cluster:
  chief: {machine: n1-standard-8, accelerator: {type: NVIDIA_TESLA_T4, count: 1}}
  workers: {machine: n1-standard-8, accelerator: {type: NVIDIA_TESLA_T4, count: 1}}
"""
SPOT = f"{WITH_GPUS}scheduling: {{strategy: SPOT}}"
# Nothing of the user's own account or configuration is to be found.
VARIABLES = (
    "CLOUDSDK_ACTIVE_CONFIG_NAME",
    "CLOUDSDK_AI_REGION",
    "CLOUDSDK_COMPUTE_REGION",
    "CLOUDSDK_CORE_PROJECT",
    "DISTLAUNCH_ENDPOINT",
    "GCLOUD_PROJECT",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_CLOUD_QUOTA_PROJECT",
    "GOOGLE_CLOUD_REGION",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A job that differs from the one that is ready.

    Parameters
    ----------
    job
        YAML that is laid over distlaunch.yaml, key by key; null takes a key away.
    edits
        What is replaced in a file, by what.
    files
        Files that are written, or removed where the text is None.
    words
        What stands behind the command.
    google
        What the fake Google lacks (arguments of `FakeGoogle`), None for a case that is offline.
    data
        What the last local run recorded of the training data; by default that of the starter.
    """

    job: str = "{}"
    edits: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    files: Mapping[str, str | bytes | None] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    google: Mapping[str, Any] | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_online(self) -> bool:
        """Whether Google is asked."""
        return self.google is not None

    def write(self, folder: Path, registry: str, pristine: Path) -> Path:
        """Write the project into a new folder."""
        shutil.copytree(pristine, folder)
        job = _laid_over(yaml.safe_load(JOB), yaml.safe_load(self.job))
        (folder / "distlaunch.yaml").write_text(_text(yaml.safe_dump(job), registry))
        for name, (old, new) in self.edits.items():
            before = (folder / name).read_text()
            assert old in before, f"{name} has no {old!r}"
            (folder / name).write_text(before.replace(old, new))
        for name, content in self.files.items():
            _put(folder / name, content, registry)
        if (folder / "trainer/data.py").exists():
            training = self.data or recorded_files(folder, "data/train-*.tfrecord", 1437)
            summary = {"data": {"training": training, "validation": None}}
            record.save(folder, "trainer.task", summary)
        return folder


@dataclass(frozen=True, kw_only=True, eq=False)
class Broken(Case):
    """A job with something wrong.

    Parameters
    ----------
    code, severity
        Of the problem.
    remedy
        What stands in the problem's remedy.
    where
        What stands in its place.
    also
        Codes that come with it.
    """

    code: str
    severity: Severity = "error"
    remedy: str
    where: str = ""
    also: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Said:
    """What a command has said."""

    code: int
    stdout: str
    stderr: str

    @property
    def report(self) -> dict[str, Any]:
        """What `check --json` says."""
        assert self.stdout, self.stderr
        return json.loads(self.stdout)

    @property
    def problems(self) -> list[dict[str, str]]:
        return self.report["problems"]

    @property
    def codes(self) -> set[str]:
        return {each["code"] for each in self.problems}


def recorded_files(folder: Path, pattern: str, examples: int) -> dict[str, Any]:
    """Return what a local run records of files: all examples in the first one, 1 in others."""
    stats = {path: path.stat() for path in sorted(folder.glob(pattern))}
    files = [
        {
            "path": str(path.relative_to(folder)),
            "bytes": stat.st_size,
            "modified_ns": stat.st_mtime_ns,
            "examples": min(1, stat.st_size) if index else examples - len(stats) + 1,
        }
        for index, (path, stat) in enumerate(stats.items())
    ]
    return {"kind": "records", "pattern": pattern, "files": files, "examples": examples}


def of_config(text: str, name: str = "config.yaml") -> dict[str, Any]:
    """Return what makes a case one of `--config`."""
    return {"files": {name: text}, "words": ("--config", name)}


def pristine(folder: Path) -> Path:
    """Write what `init` writes."""
    scaffold.plan(folder, "digits").write(folder)
    return folder


def run(*words: str, folder: Path) -> Said:
    """Run a command of distlaunch's in a folder."""
    return Said(*running.run(words, str(folder)))


def _laid_over(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(below)
    for key, value in above.items():
        if value is None:
            del made[key]
        elif isinstance(value, dict) and isinstance(made.get(key), dict):
            made[key] = _laid_over(made[key], value)
        else:
            made[key] = value
    return made


def _text(text: str, registry: str) -> str:
    return text.replace(REGISTRY, registry)


def _put(file: Path, content: str | bytes | None, registry: str) -> None:
    if content is None:
        file.unlink()
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else _text(content, registry).encode())
