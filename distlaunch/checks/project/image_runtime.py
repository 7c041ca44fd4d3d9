"""The image that a project's code runs in: its base, its Python, and the user's Dockerfile."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from distlaunch.checks.problem import warning
from distlaunch.image.dockerfile_parser import read_dockerfile
from distlaunch.image.requirements import markers
from distlaunch.image.trainer_wheel import is_needed
from distlaunch.job.model import DEFAULT_BASE, Image
from distlaunch.resources import TRAINER
from distlaunch.template import OWN_TEMPLATES, is_rendered

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from distlaunch.checks.problem import Problem
    from distlaunch.image.dockerfile_parser import Dockerfile
    from distlaunch.job.launch import LaunchRequest

_PYTHON = re.compile(r"(?:docker\.io/|(?:[\w.-]+/)*library/)?python(?:[:@].*)?")
_VERSION = re.compile(r"py(?:thon)?[:-]?3\.?([6-9]|[1-9]\d)(?!\d)")  # python:3.12, tf-cpu.py310
_WITHOUT_PYTHON = re.compile(
    r"(?:(?:docker\.io/)?(?:library/)?(?:alpine|debian|ubuntu)|(?:.*/)?nvidia/cuda)(?:[:@].*)?"
)
_TENSORFLOW = re.compile(r"(?:docker\.io/)?tensorflow/tensorflow(?::([^@]*)(?:@.*)?)?")


@dataclass(frozen=True)
class OwnDockerfile:
    """A Dockerfile of the user, by its path in the project."""

    path: str
    text: str
    image: Image = field(default_factory=Image)

    @cached_property
    def parsed(self) -> Dockerfile:
        return read_dockerfile(self.text, self.image.build_args, self.image.target)

    def names(self, file: str) -> bool:
        """Return whether an instruction names a file."""
        instructions = self.parsed.instructions
        return any(posixpath.basename(file) in each.arguments for each in instructions)


@dataclass(frozen=True, slots=True)
class ImageRuntime:
    """What is known of a job's image before it is built; None is not known."""

    base: str | None
    python: tuple[int, int] | None
    is_plain: bool  # has nothing but Python and what pip installs
    own: OwnDockerfile | None = None  # None for the rendered one
    own_ignore: bool = False  # the project has a .dockerignore of the user
    template: str = ""  # the user's template of the Dockerfile

    def set_base(self, base: str) -> str:
        """Return the remedy that replaces the base image."""
        return f"write FROM {base} in {self.own.path}" if self.own else f"set image.base: {base}"

    def has(self, tool: str) -> bool:
        """Return whether the base has python or git, as far as its name shows it."""
        is_small = re.search("slim|alpine", self.base or "") and _PYTHON.fullmatch(self.base or "")
        is_system = _WITHOUT_PYTHON.fullmatch(self.base or "") is not None
        return not is_system and not (tool == "git" and is_small)

    @property
    def script(self) -> str:
        """What the user wrote to build the image, without comments; empty for a rendered one."""
        return self.own.parsed.text if self.own else self.template

    @property
    def markers(self) -> dict[str, str]:
        """The values of environment markers in the image."""
        return markers(f"{self.python[0]}.{self.python[1]}.0" if self.python else None)


def tensorflow_tag(image: str | None) -> str | None:
    """Return the tag of a tensorflow/tensorflow image, None for another image and for a digest."""
    match = _TENSORFLOW.fullmatch(image or "")
    return (match[1] or "latest") if match else None


def describe_image(launch: LaunchRequest) -> ImageRuntime:
    """Return what is known of the image that is built for a job."""
    job, folder = launch.job, launch.folder
    path = _own_file(folder, job.image.dockerfile, "Dockerfile")
    own = OwnDockerfile(path, _text(folder, path), job.image) if path else None
    base = own.parsed.base if own else job.image.base or DEFAULT_BASE
    version = _VERSION.search((base or "").partition("@")[0])
    template = _text(folder, f"{OWN_TEMPLATES}/Dockerfile.j2")
    return ImageRuntime(
        base,
        (3, int(version[1])) if version else None,
        is_plain=bool(_PYTHON.fullmatch(base or "")) and own is None and not template,
        own=own,
        own_ignore=_own_file(folder, None, ".dockerignore") is not None,
        template=template,
    )


def trainer_problems(
    runtime: ImageRuntime, folder: Path, files: Collection[str], module: str
) -> Iterator[Problem]:
    """Yield a warning if the user's Dockerfile or template leaves out the trainer package.

    `files` are the project's files in the image.
    """
    if runtime.own:
        path, text = runtime.own.path, runtime.own.parsed.text  # without comments
    else:
        path, text = f"{OWN_TEMPLATES}/Dockerfile.j2", runtime.template
    is_installed = not text or "install_trainer" in text or TRAINER in text
    if not is_installed and is_needed(folder, files, module):
        what = f"the project imports {TRAINER}, which this file does not install"
        remedy = "run 'distlaunch eject', which copies it into the project"
        yield warning("trainer-not-installed", path, what, remedy)


def _own_file(folder: Path, path: str | None, name: str) -> str | None:
    """Return the path of a file that the user wrote, None if it is rendered or missing."""
    if path:
        return posixpath.normpath(path)
    is_own = (folder / name).is_file() and not is_rendered(_text(folder, name))
    return name if is_own else None


def _text(folder: Path, path: str) -> str:
    try:
        return (folder / path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
