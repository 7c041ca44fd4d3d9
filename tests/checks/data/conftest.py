"""A project that `init` makes, and the record of its data in the last local run."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from distlaunch.checks import data, trainer
from distlaunch.checks.data import record
from distlaunch.checks.project.image_runtime import describe_image
from distlaunch.checks.request_view import job_request
from distlaunch.image.context import read_context
from distlaunch.job.load import load_job_file
from distlaunch.job.machine_catalogue import bundled
from distlaunch.job.model import Machine, Pool
from distlaunch.render import templates
from distlaunch.submit.plan import LaunchRequest

if TYPE_CHECKING:
    from distlaunch.checks.data import DataFacts
    from distlaunch.checks.problem import Problem
    from distlaunch.job.model import Job

READ = """
from trainer.distributed.input import Records


def training():
    return Records({pattern!r}, parse=parse)
"""


def records(folder: Path, pattern: str, *counts: int) -> dict[str, Any]:
    """Return what a summary records of the files of a pattern with so many examples each."""
    files = [
        {
            "path": str(path) if pattern.startswith("/") else str(path.relative_to(folder)),
            "bytes": path.stat().st_size,
            "modified_ns": path.stat().st_mtime_ns,
            "examples": count,
        }
        for path, count in zip(
            sorted((folder / pattern).parent.glob(Path(pattern).name)), counts, strict=True
        )
    ]
    return {"kind": "records", "pattern": pattern, "files": files, "examples": sum(counts)}


@dataclass
class Project:
    """A project, to be changed and checked."""

    folder: Path
    job: Job

    def write(self, name: str, content: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def change(self, **changes: Any) -> None:
        """Change the job."""
        self.job = replace(self.job, **changes)

    def include(self, *paths: str) -> None:
        self.change(image=replace(self.job.image, include=paths))

    def use_cluster(
        self, tasks: int, gpus: int = 0, accelerator: str = "NVIDIA_TESLA_T4", kind: str = "n9"
    ) -> None:
        machine = Machine(kind, accelerator if gpus else None, gpus)
        workers = Pool(machine, tasks - 1) if tasks > 1 else None
        self.change(cluster=replace(self.job.cluster, chief=Pool(machine), workers=workers))

    def ran(self, training: dict[str, Any], validation: dict[str, Any] | None = None) -> None:
        """Keep the record of a local run."""
        summary = {"data": {"training": training, "validation": validation}}
        source = self.folder / "trainer/data.py"
        record.save(self.folder, source, record.hash_source(source), summary)

    def ran_on(self, pattern: str, *counts: int, text: str = READ) -> None:
        """Write data.py with a pattern, and keep the record of a run on its files."""
        self.write("trainer/data.py", text.format(pattern=pattern))
        self.ran(records(self.folder, pattern, *counts))

    def check(self) -> tuple[DataFacts | None, list[Problem]]:
        order = LaunchRequest(self.folder, self.job)
        ignore = templates.recipe(self.job, self.folder).ignore
        files = [file.path for file in read_context(self.folder, ignore).files]
        request, image = job_request(order), describe_image(order)
        return data.check_data(
            order, request, trainer.find_trainer(order), files, image, catalogue=bundled()
        )

    @property
    def facts(self) -> DataFacts:
        facts, _ = self.check()
        assert facts is not None
        return facts

    @property
    def problems(self) -> list[Problem]:
        return self.check()[1]

    @property
    def codes(self) -> list[tuple[str, str]]:
        return [(problem.severity, problem.code) for problem in self.problems]


@pytest.fixture
def project(pristine: Path, tmp_path: Path) -> Project:
    folder = Path(shutil.copytree(pristine, tmp_path / "digits"))
    project = Project(folder, load_job_file(folder / "distlaunch.yaml"))
    training = records(folder, "data/train-*.tfrecord", 401, 97, 523, 211, 205)
    project.ran(training, records(folder, "data/validation-*.tfrecord", 200, 160))
    return project
