"""The image that a project's code runs in: base, Python, Dockerfile and search path."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.checks.project.dockerfile import OwnDockerfile
from distlaunch.render import templates

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.submit.plan import LaunchRequest

_PYTHON = re.compile(
    r"(?:docker\.io/)?(?:library/)?python(?::3\.(?P<minor>\d+)(?![0-9]).*|[:@].*)?"
)
_TENSORFLOW = re.compile(r"(?:docker\.io/)?tensorflow/tensorflow(?::(?P<tag>[^@]*)|@.*)?")


@dataclass(frozen=True, slots=True)
class ImageRuntime:
    """What is known of a job's image before it is built; None is not known.

    `is_plain` is whether it has nothing but Python and what pip installs. `own` is the user's own
    Dockerfile (None for the rendered one), `requirements` the file that it installs, and
    `own_ignore` whether the project has its own .dockerignore.
    """

    base: str | None
    python: tuple[int, int] | None
    is_plain: bool
    own: OwnDockerfile | None = None
    requirements: str | None = None
    own_ignore: bool = False

    @property
    def own_dockerfile(self) -> str | None:
        """The path of the user's own Dockerfile in the project, None for the rendered one."""
        return self.own.path if self.own else None

    @property
    def installs_requirements(self) -> bool:
        """Whether the requirements are known to be installed."""
        return self.own is None or self.requirements is not None

    @property
    def tensorflow_tag(self) -> str | None:
        """The tag of the tensorflow/tensorflow base image, None for another one."""
        match = _TENSORFLOW.fullmatch(self.base or "")
        return (match["tag"] or "latest") if match else None

    @property
    def markers(self) -> dict[str, str]:
        """The values of environment markers in the image."""
        markers = {
            "os_name": "posix",
            "sys_platform": "linux",
            "platform_system": "Linux",
            "platform_machine": "x86_64",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "extra": "",
        }
        if self.python:
            version = f"{self.python[0]}.{self.python[1]}"
            markers |= {"python_version": version, "python_full_version": f"{version}.0"}
        return markers

    def change_base(self, base: str) -> str:
        """Return the remedy that names another base image."""
        return f"write FROM {base} in {self.own.path}" if self.own else f"set image.base: {base}"


def describe_image(order: LaunchRequest) -> ImageRuntime:
    """Return what is known of the image that is built for an order."""
    job, folder = order.job, order.folder
    path = own_file(folder, job.image.dockerfile, "Dockerfile")
    own = OwnDockerfile(path, _text(folder, path)) if path else None
    base = own.parsed.base if own else job.image.base or templates.BASE
    python = _PYTHON.fullmatch(base or "")
    requirements = own.installed_file(folder) if own and python else None
    has_template = (folder / templates.OWN_TEMPLATES / "Dockerfile.j2").exists()
    return ImageRuntime(
        base,
        (3, int(python["minor"])) if python and python["minor"] else None,
        is_plain=python is not None and (bool(requirements) if own else not has_template),
        own=own,
        requirements=requirements,
        own_ignore=own_file(folder, None, ".dockerignore") is not None,
    )


def own_file(folder: Path, path: str | None, name: str) -> str | None:
    """Return the path of a file that the user wrote, None if it is rendered or missing."""
    if path:
        return posixpath.normpath(path)
    is_own = (folder / name).is_file() and not templates.is_ours(_text(folder, name))
    return name if is_own else None


def _text(folder: Path, path: str) -> str:
    try:
        return (folder / path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
