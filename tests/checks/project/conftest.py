"""A project as `init` makes it, and what is found in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from distlaunch import scaffold
from distlaunch.checks import project, trainer
from distlaunch.checks.request_view import job_request
from distlaunch.image.context import paths
from distlaunch.job.load import load_job_file
from distlaunch.job.overrides import Override
from distlaunch.render.templates import recipe
from distlaunch.submit.plan import LaunchRequest

if TYPE_CHECKING:
    from distlaunch.checks.problem import Problem


@dataclass
class Project:
    """A project's folder with the job that its file says."""

    folder: Path

    def write(self, path: str, text: str | bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())

    def begin(self, path: str, text: str) -> None:
        """Write some lines before those of a file."""
        self.write(path, text + (self.folder / path).read_text())

    def order(self, *sets: str, **job: Any) -> LaunchRequest:
        said = [Override.parse(each) for each in sets]
        read = load_job_file(self.folder / "distlaunch.yaml", said)
        return LaunchRequest(self.folder, replace(read, **job))

    def problems(self, *sets: str, **job: Any) -> list[Problem]:
        order = self.order(*sets, **job)
        files = set(paths(self.folder, recipe(order.job, self.folder).ignore))
        return list(project.problems(order, job_request(order), files, trainer.find(order)))

    def codes(self, *sets: str, **job: Any) -> list[tuple[str, str]]:
        return [(each.code, each.severity) for each in self.problems(*sets, **job)]


# Files of the engine room that make it one, or that others import.
ENGINE_ROOM = ("__init__.py", "run.py", "settings.py", "stop_signal.py", "input.py")


@pytest.fixture(scope="session")
def scaffolded() -> scaffold.Scaffold:
    return scaffold.plan(Path("digits"), "digits")


@pytest.fixture
def whole(scaffolded: scaffold.Scaffold, tmp_path: Path) -> Project:
    """A project as `init` makes it."""
    scaffolded.write(tmp_path / "whole")
    return Project(tmp_path / "whole")


@pytest.fixture
def made(scaffolded: scaffold.Scaffold, tmp_path: Path) -> Project:
    """The same without what nothing here looks at, which is most of it."""
    files = {path: content for path, content in scaffolded.files.items() if _matters(path)}
    replace(scaffolded, files=files).write(tmp_path / "made")
    return Project(tmp_path / "made")


def _matters(path: Path) -> bool:
    is_text = path.suffix in (".py", ".yaml", ".txt") or path.name == "ATTRIBUTION.md"
    return is_text and ("distributed" not in path.parts or path.name in ENGINE_ROOM)


@pytest.fixture
def plain(tmp_path: Path) -> Project:
    """A project of one file, with a program of the user's own."""
    found = Project(tmp_path / "plain")
    found.write("distlaunch.yaml", JOB)
    found.write("program.py", "import json\n")
    return found


JOB = """\
name: plain
module: program
cluster: {chief: {machine: n1-standard-4}}
"""
