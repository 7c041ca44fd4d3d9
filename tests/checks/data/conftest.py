"""A project of `init`'s, and what is said of its data."""

from __future__ import annotations

import shutil
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import google_crc32c
import pytest

from distlaunch.checks import data, trainer
from distlaunch.checks.request_view import job_request
from distlaunch.image.context import read_context
from distlaunch.job import project_file
from distlaunch.job.machine_catalogue import bundled
from distlaunch.job.model import Machine, Pool
from distlaunch.render import templates
from distlaunch.submit.plan import Order

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distlaunch.checks.data import DataFacts
    from distlaunch.checks.problem import Problem
    from distlaunch.job.model import Job


def tfrecords(records: Iterable[bytes]) -> bytes:
    """Return a file of records as TensorFlow writes it."""
    return b"".join(map(_record, records))


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def _masked(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


@dataclass
class Project:
    """A project, to be changed and looked at."""

    folder: Path
    job: Job
    endpoint: str | None = None

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def records(self, name: str, count: int) -> Path:
        return self.write(name, tfrecords([b"x" * 8] * count))

    def reads(self, pattern: str) -> None:
        """Have `training()` read the files of a pattern, an expression of Python's."""
        self.write(
            "trainer/data.py",
            "import os\nfrom pathlib import Path\n"
            "from trainer.distributed.input import Records\n\n\n"
            f"def training():\n    return Records({pattern}, parse=parse)\n",
        )

    def has(self, **changes: Any) -> None:
        """Change the job."""
        self.job = replace(self.job, **changes)

    def includes(self, *paths: str) -> None:
        self.has(image=replace(self.job.image, include=paths))

    def runs_on(
        self,
        tasks: int,
        gpus: int = 0,
        accelerator: str = "NVIDIA_TESLA_T4",
        kind: str = "n1-standard-8",
    ) -> None:
        machine = Machine(kind, accelerator if gpus else None, gpus)
        workers = Pool(machine, tasks - 1) if tasks > 1 else None
        self.has(cluster=replace(self.job.cluster, chief=Pool(machine), workers=workers))

    @property
    def order(self) -> Order:
        return Order(self.folder, self.job, endpoint=self.endpoint)

    def look(self) -> tuple[DataFacts | None, list[Problem]]:
        order = self.order
        ignore = templates.recipe(self.job, self.folder).ignore
        files = [file.path for file in read_context(self.folder, ignore).files]
        return data.look(order, job_request(order), trainer.find(order), files, bundled())

    @property
    def facts(self) -> DataFacts:
        facts, _ = self.look()
        assert facts is not None
        return facts

    @property
    def problems(self) -> list[Problem]:
        return self.look()[1]

    @property
    def codes(self) -> list[str]:
        return [problem.code for problem in self.problems]


@pytest.fixture
def project(pristine: Path, tmp_path: Path) -> Project:
    folder = Path(shutil.copytree(pristine, tmp_path / "digits"))
    return Project(folder, project_file.load(folder / "distlaunch.yaml"))
