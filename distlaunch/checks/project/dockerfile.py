"""Rules for a Dockerfile of the user's own, and what it installs."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from distlaunch.checks.problem import warning
from distlaunch.image.dockerfile import read_dockerfile, run_commands
from distlaunch.image.requirements import pip_install

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from distlaunch.checks.problem import Problem
    from distlaunch.image.dockerfile import Dockerfile
    from distlaunch.image.requirements import PipInstall
    from distlaunch.job.model import Job

_INSTALLERS = {
    *("install", "conda", "mamba", "uv", "poetry", "pipenv", "easy_install", "sh", "bash"),
    *("/bin/sh", "/bin/bash"),
}
_PIP_ITSELF = {"pip", "setuptools", "wheel"}
_CUDA = re.compile(r"cuda|cudnn|nvidia", re.IGNORECASE)
_WITHOUT_CUDA = re.compile(r"(?:docker\.io/)?(?:library/)?(?:python|debian|ubuntu)(?:[:@].*)?")
_TENSORFLOW = re.compile(r"(tensorflow(?:-cpu)?)(?:[=<>!~;@ ].*)?")
_MADE_FOR = re.compile(r"\\1(tensorflow-cpu|tensorflow\[and-cuda\])\\3")  # `sed_script`


@dataclass(frozen=True)
class OwnDockerfile:
    """A Dockerfile of the user's own, by its path in the project."""

    path: str
    text: str

    @cached_property
    def parsed(self) -> Dockerfile:
        return read_dockerfile(self.text)

    @property
    def made_for_gpus(self) -> bool | None:
        """Whether it rewrites the requirements for GPUs or for CPUs; None if it does not."""
        match = _MADE_FOR.search(self.text)
        return match[1] == "tensorflow[and-cuda]" if match else None

    @property
    def is_without_cuda(self) -> bool:
        """Whether its base image has no CUDA, and no line names CUDA."""
        base = self.parsed.base
        return base is not None and bool(_WITHOUT_CUDA.fullmatch(base)) and not self._names_cuda

    @property
    def _names_cuda(self) -> bool:
        return _CUDA.search(self.text) is not None

    @property
    def tensorflow(self) -> tuple[str, str] | None:
        """The location at which pip installs TensorFlow by name, and the name."""
        for instruction in self.parsed.instructions:
            for command in run_commands(instruction):
                install = pip_install(command)
                for package in install.packages if install else ():
                    if match := _TENSORFLOW.fullmatch(package):
                        return f"{self.path}:{instruction.line}", match[1]
        return None

    def installed_file(self, folder: Path) -> str | None:
        """Return the requirements file of the project if it installs only that one."""
        instructions = self.parsed.instructions
        if "--from=" in self.text or any(each.has_heredoc for each in instructions):
            return None
        commands = [command for each in instructions for command in run_commands(each)]
        installs: set[str] = set()
        for command in commands:
            install = pip_install(command)
            if install is None:
                if _installs_otherwise(command):
                    return None
            elif not _is_pip_itself(install):
                if len(install.files) != 1 or not _has_only_files(install):
                    return None
                installs.add(install.files[0])
        return self._in_project(installs.pop(), folder) if len(installs) == 1 else None

    def _in_project(self, path: str, folder: Path) -> str | None:
        """Return the file of the project that has a path in the image."""
        sources = [
            posixpath.normpath(source)
            for each in self.parsed.instructions
            for source in each.sources
        ]
        name = posixpath.basename(path)
        likely = [each for each in sources if posixpath.basename(each) == name]
        if "." in sources:
            likely += [posixpath.normpath(path), name]
        inside = (each for each in likely if not each.startswith(("/", "..")))
        return next((each for each in inside if (folder / each).is_file()), None)


def ignored_settings(own: OwnDockerfile, job: Job) -> Iterator[Problem]:
    """Yield a warning for each setting of the job file that its Dockerfile does not use."""
    base, requirements = job.image.base, job.image.requirements
    bases = [stage.base for stage in own.parsed.stages]
    if base and base not in bases and not any("$" in each for each in bases):
        yield warning(
            "dockerfile-wins",
            "image.base",
            f"{own.path} builds the image from {own.parsed.base}, not from {base}",
            f"write FROM {base} in {own.path}, or remove one of them",
        )
    if requirements and posixpath.basename(requirements) not in own.text:
        yield warning(
            "dockerfile-wins",
            "image.requirements",
            f"{own.path} builds the image, and does not install {requirements}",
            f"write RUN pip install -r {requirements} in {own.path}, or remove one of them",
        )


def _installs_otherwise(command: tuple[str, ...]) -> bool:
    """Return whether a command may install Python packages or CUDA."""
    words = [word for word in command if word != "sudo"]
    if words and words[0] in ("apt", "apt-get"):
        return _CUDA.search(" ".join(words)) is not None
    return not _INSTALLERS.isdisjoint(words)


def _is_pip_itself(install: PipInstall) -> bool:
    return not install.files and {*install.packages, "pip"} <= _PIP_ITSELF


def _has_only_files(install: PipInstall) -> bool:
    targets = [each for each in install.options if each.startswith(("-t", "--target"))]
    return not (install.packages or install.constraints or targets)
