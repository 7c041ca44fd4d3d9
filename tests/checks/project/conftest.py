"""A project as `init` writes it, and the problems of its code and requirements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from distlaunch import scaffold
from distlaunch.checks import project, trainer
from distlaunch.checks.project.image_runtime import describe_image
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
    """A project's folder."""

    folder: Path

    def write(self, path: str, text: str | bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())

    def prepend(self, path: str, text: str) -> None:
        self.write(path, text + (self.folder / path).read_text())

    def order(self, *overrides: str, **job: Any) -> LaunchRequest:
        parsed = [Override.parse(each) for each in overrides]
        read = load_job_file(self.folder / "distlaunch.yaml", parsed)
        return LaunchRequest(self.folder, replace(read, **job))

    def problems(self, *overrides: str, has_files: bool = True, **job: Any) -> list[Problem]:
        order = self.order(*overrides, **job)
        files = None
        if has_files:
            files = set(paths(self.folder, recipe(order.job, self.folder).ignore))
        bundled, runtime = trainer.find_trainer(order), describe_image(order)
        return list(project.problems(order, job_request(order), runtime, files, bundled))

    def found(self, *overrides: str, **job: Any) -> list[tuple[str, str, str]]:
        problems = self.problems(*overrides, **job)
        return [(each.code, each.severity, each.where) for each in problems]


@pytest.fixture(scope="session")
def scaffolded() -> scaffold.Scaffold:
    return scaffold.plan(Path("digits"), "digits")


@pytest.fixture
def whole(scaffolded: scaffold.Scaffold, tmp_path: Path) -> Project:
    """A project as `init` writes it."""
    scaffolded.write(tmp_path / "whole")
    return Project(tmp_path / "whole")


@pytest.fixture
def bundled(scaffolded: scaffold.Scaffold, tmp_path: Path) -> Project:
    """The same without data and without most of the trainer library."""
    files = {path: content for path, content in scaffolded.files.items() if _is_needed(path)}
    replace(scaffolded, files=files).write(tmp_path / "bundled")
    project = Project(tmp_path / "bundled")
    for name in ("run", "input", "settings", "stop_signal"):
        project.write(f"trainer/distributed/{name}.py", "import tensorflow\n")
    return project


def _is_needed(path: Path) -> bool:
    is_text = path.suffix in (".py", ".yaml", ".txt") or path.name == "ATTRIBUTION.md"
    in_library = "distributed" in path.parts and path.name != "__init__.py"
    return is_text and not in_library


@pytest.fixture
def plain(tmp_path: Path) -> Project:
    """A project of one file that does not use the bundled trainer."""
    project = Project(tmp_path / "plain")
    project.write(
        "distlaunch.yaml",
        "name: plain\nmodule: program\ncluster: {chief: {machine: n1-standard-4}}\n",
    )
    project.write("program.py", "import json\n")
    return project
