"""A project to change and check, a registry, and a machine without accounts."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fake_registry import FakeRegistry

from distlaunch import resources, scaffold
from distlaunch.checks.data import check_data
from distlaunch.checks.preflight import project_problems
from distlaunch.checks.project import requirements
from distlaunch.checks.project.image_runtime import describe_image
from distlaunch.checks.trainer import find_trainer
from distlaunch.cli import main
from distlaunch.image.context import paths
from distlaunch.image.recipe import read_recipe
from distlaunch.job.launch import LaunchRequest
from distlaunch.job.load import load_job
from distlaunch.job.vertex.view import job_request

from .corpus.cases import EXAMPLES, TRAINING, Case, Result, records, write_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distlaunch.checks.data import DataPlan
    from distlaunch.checks.problem import Problem

ACCOUNTS = ("CLOUDSDK_", "DISTLAUNCH_ENDPOINT", "GCLOUD_", "GOOGLE_")  # variables of accounts


def _only_loopback(resolve: Callable[..., Any]) -> Callable[..., Any]:
    def getaddrinfo(host: str, *rest: Any, **more: Any) -> Any:
        if host not in ("127.0.0.1", "localhost"):
            raise socket.gaierror(socket.EAI_NONAME, f"{host} is not resolved in tests")
        return resolve(host, *rest, **more)

    return getaddrinfo


@pytest.fixture(scope="session", autouse=True)
def installed_packages() -> Iterator[None]:
    """Parse the metadata of each installed package once: no test installs one."""
    metadata = importlib.metadata.Distribution.metadata.fget
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requirements, "_distribution", cache(requirements._distribution))
        patch.setattr(importlib.metadata.Distribution, "metadata", property(cache(metadata)))
        yield


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pristine") / "digits"
    scaffold.plan(folder, "digits").write(folder)
    return folder


@pytest.fixture(scope="session")
def base_registry() -> Iterator[FakeRegistry]:
    """A read-only registry with a base image, and one for arm64."""
    with FakeRegistry(read_only=True) as registry:
        for name, tag, architecture in (("python", "3.12", "amd64"), ("arm", "1", "arm64")):
            environment = ["PATH=/usr/local/bin:/usr/bin:/bin", "PYTHON_VERSION=3.12.12"]
            config = {
                "os": "linux",
                "architecture": architecture,
                "config": {"Env": environment, "Entrypoint": ["python", "-m", "trainer.task"]},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{'0' * 64}"]},
            }
            registry.put_image(name, tag, config, b"layer")
        yield registry


@pytest.fixture(scope="session")
def bare_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A machine without accounts, without Docker and without a configuration."""
    folder = tmp_path_factory.mktemp("bare")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(ACCOUNTS)]:
            patch.delenv(name)
        for name in ("CLOUDSDK_CONFIG", "DOCKER_CONFIG", "XDG_CACHE_HOME"):
            patch.setenv(name, str(folder))
        patch.setenv("DOCKER_HOST", f"unix://{folder}/no-docker.sock")
        patch.setenv("NO_GCE_CHECK", "true")
        patch.setattr(socket, "getaddrinfo", _only_loopback(socket.getaddrinfo))
        yield folder


@pytest.fixture
def write(
    tmp_path: Path, pristine: Path, base_registry: FakeRegistry, bare_machine: Path
) -> Callable[[Case], Path]:
    """Write the project of a case."""
    return lambda case: case.write(tmp_path / "digits", base_registry.host, pristine)


@pytest.fixture
def run(capfd, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command in this process and a folder."""

    def run_command(*words: str, folder: Path) -> Result:
        monkeypatch.chdir(folder)
        capfd.readouterr()
        code = main(words)
        return Result(code, *capfd.readouterr())

    return run_command


@pytest.fixture(scope="session")
def with_base(base_registry: FakeRegistry) -> tuple[str, ...]:
    """Options for a base image in the tests' registry."""
    return ("--set", f"image.base={base_registry.host}/python:3.12")


@dataclass
class Project:
    """A project's folder, and the problems of its code and its data."""

    folder: Path

    def write(self, path: str, text: str | bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())

    def prepend(self, path: str, text: str) -> None:
        self.write(path, text + (self.folder / path).read_text())

    def order(self, *overrides: str) -> LaunchRequest:
        job = load_job(self.folder, overrides=overrides).job
        return LaunchRequest(self.folder, job, overrides=overrides)

    def problems(self, *overrides: str, has_files: bool = True) -> list[Problem]:
        """Return the problems of code and requirements."""
        order = self.order(*overrides)
        files = self._files(order) if has_files else None
        bundled, runtime = find_trainer(order), describe_image(order)
        listed = requirements.load_requirements(order.job, order.folder, runtime)
        return list(project_problems(order, job_request(order), listed, files, bundled))

    def summary(self, *overrides: str) -> list[tuple[str, str, str]]:
        problems = self.problems(*overrides)
        return [(each.code, each.severity, each.where) for each in problems]

    def _files(self, order: LaunchRequest) -> set[str]:
        return set(paths(self.folder, read_recipe(order.job, self.folder).ignore))

    def ran(self, training: dict[str, Any], validation: dict[str, Any] | None = None) -> None:
        """Write the summary of a local run."""
        write_run(self.folder, training, validation)

    def ran_on(self, pattern: str, *counts: int, argument: str = "", more: str = "") -> None:
        """Write data.py with a pattern, or what computes it, and the summary of a run."""
        imported = "from distlaunch_trainer import Records\n"
        read = f"def training():\n    return Records({argument or repr(pattern)}, parse)\n"
        self.write("trainer/data.py", f"{imported}{read}{more}")
        self.ran(records(self.folder, pattern, *counts))

    def data(self, *overrides: str) -> tuple[DataPlan | None, list[Problem]]:
        """Return the plan and the problems of the data."""
        order = self.order(*overrides)
        request, runtime = job_request(order), describe_image(order)
        return check_data(order, request, find_trainer(order), self._files(order), runtime)

    @staticmethod
    def cluster(tasks: int, gpus: int = 0) -> str:
        """Return the override for a cluster of equal machines."""
        accelerator = f", accelerator: {{type: NVIDIA_TESLA_T4, count: {gpus}}}" if gpus else ""
        pool = f"machine: n1-standard-8{accelerator}"
        workers = f", workers: {{{pool}, count: {tasks - 1}}}" if tasks > 1 else ""
        return f"cluster={{chief: {{{pool}}}{workers}}}"

    def data_codes(self, *overrides: str) -> list[tuple[str, str]]:
        return [(each.severity, each.code) for each in self.data(*overrides)[1]]


@pytest.fixture
def whole(pristine: Path, tmp_path: Path) -> Project:
    """A project as `init` writes it, with the summary of a local run."""
    made = Project(Path(shutil.copytree(pristine, tmp_path / "whole")))
    training = records(made.folder, TRAINING, *EXAMPLES)
    made.ran(training, records(made.folder, "data/validation-*.tfrecord", 200, 160))
    return made


def _left_out(_: str, names: list[str]) -> list[str]:
    return [name for name in names if "tfrecord" in name]


@pytest.fixture
def bundled(pristine: Path, tmp_path: Path) -> Project:
    """The same without data."""
    return Project(Path(shutil.copytree(pristine, tmp_path / "bundled", ignore=_left_out)))


@pytest.fixture
def ejected(bundled: Project) -> Project:
    """The same with its own copy of the trainer package, in which most modules are short."""
    package = resources.trainer_package()
    bundled.write("distlaunch_trainer/__init__.py", (package / "__init__.py").read_bytes())
    for file in package.glob("[!_]*.py"):
        bundled.write(f"distlaunch_trainer/{file.name}", "import tensorflow\n")
    bundled.write("distlaunch_trainer/options.py", (package / "options.py").read_bytes())
    return bundled


@pytest.fixture
def plain(tmp_path: Path) -> Project:
    """A project of one file that does not use the bundled trainer."""
    other = Project(tmp_path / "plain")
    pool = "{chief: {machine: n1-standard-4}}"
    other.write("distlaunch.yaml", f"name: plain\nmodule: program\ncluster: {pool}\n")
    other.write("program.py", "import json\n")
    return other
