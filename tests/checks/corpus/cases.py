"""The jobs of jobs.yaml: each changes one project, that of `init` with a cluster and names."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from distlaunch.checks.data import hash_modules
from distlaunch.job.yaml_document import deep_merge

if TYPE_CHECKING:
    from collections.abc import Mapping

TRAINING, EXAMPLES = "data/train-*.tfrecord", (401, 97, 523, 211, 205)  # of the starter
REGISTRY = "REGISTRY"  # replaced by the host of the tests' registry
CORPUS = yaml.safe_load(Path(__file__).with_name("jobs.yaml").read_text(encoding="utf-8"))


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A job of the corpus, and what `check` reports of it."""

    job: Mapping[str, Any] = field(default_factory=dict)  # merged into the file; null removes a key
    edits: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # old and new text in files
    files: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()  # arguments of the command
    google: Mapping[str, Any] | None = None  # arguments of `FakeGoogle`; None for an offline check
    data: Mapping[str, Any] = field(default_factory=dict)  # the record; default: the starter's
    code: str = ""
    severity: str = "error"
    where: str = ""  # a part of the location
    remedy: str = ""  # a part of it
    also: tuple[str, ...] = ()  # codes that come with it
    warned: tuple[str, ...] = ()  # codes of the warnings of a good job
    message: str = ""  # the error of a job that cannot be read

    def write(self, folder: Path, registry: str, pristine: Path) -> Path:
        shutil.copytree(pristine, folder)
        job = yaml.safe_dump(deep_merge(CORPUS["job"], self.job, drop_none=True))
        (folder / "distlaunch.yaml").write_text(job.replace(REGISTRY, registry))
        for name, (old, new) in self.edits.items():
            before = (folder / name).read_text()
            assert old in before, f"{name} has no {old!r}"
            (folder / name).write_text(before.replace(old, new))
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content.replace(REGISTRY, registry))
        if (folder / "trainer/data.py").exists():
            write_run(folder, self.data or records(folder, TRAINING, *EXAMPLES))
        return folder


@dataclass(frozen=True)
class Result:
    """The exit code and the output of a command."""

    code: int
    stdout: str
    stderr: str

    @property
    def report(self) -> dict[str, Any]:
        assert self.stdout, self.stderr
        return json.loads(self.stdout)

    @property
    def problems(self) -> list[dict[str, str]]:
        return self.report["problems"]

    @property
    def codes(self) -> set[str]:
        return {problem["code"] for problem in self.problems}


def write_run(folder: Path, training: Any, validation: Any = None) -> Path:
    """Write the summary of a local run, and return its path."""
    modules = hash_modules(folder / "trainer/data.py")
    data = {"training": training, "validation": validation}
    path = folder / ".distlaunch/local/20261126-120000/summary.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"data": data, "data_modules": modules}))
    return path


def records(folder: Path, pattern: str, *counts: int) -> dict[str, Any]:
    """Return what a summary records of the files of a pattern with so many examples each."""
    paths = sorted((folder / pattern).parent.glob(Path(pattern).name))
    files = [
        {
            "path": str(path) if pattern.startswith("/") else str(path.relative_to(folder)),
            "bytes": path.stat().st_size,
            "modified_ns": path.stat().st_mtime_ns,
            "examples": count,
        }
        for path, count in zip(paths, counts, strict=True)
    ]
    return {"kind": "records", "pattern": pattern, "files": files, "examples": sum(counts)}


BROKEN, GOOD, UNREADABLE = (
    {name: Case(**fields) for name, fields in CORPUS[section].items()}
    for section in ("broken", "good", "unreadable")
)
