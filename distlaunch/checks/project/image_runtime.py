"""What a project's code finds around it in its image, as far as that can be told from here."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.checks.project.dockerfile import Dockerfile
from distlaunch.render import templates

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.job.model import Job
    from distlaunch.submit.plan import LaunchRequest

_PYTHON = re.compile(
    r"(?:docker\.io/)?(?:library/)?python(?::3\.(?P<minor>\d+)(?![0-9]).*|[:@].*)?"
)
_TENSORFLOW = re.compile(r"(?:docker\.io/)?tensorflow/tensorflow(?::(?P<tag>[^@]*)|@.*)?")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What there is around a project's code.

    Parameters
    ----------
    base
        The image that its own begins with, None where that cannot be told.
    python
        The version of Python there, None where that cannot be told.
    is_plain
        Whether there is nothing but Python and what pip installs.
    own
        The user's own Dockerfile, None for a rendered one.
    requirements
        The file that pip installs, None where nobody can tell: the one that the job says.
    own_ignore
        Whether the user's own .dockerignore says what goes into the image.
    roots
        Where Python looks for the project's modules, as paths in the project.
    looks_elsewhere
        Whether it looks for modules where nothing is known of.
    """

    base: str | None
    python: tuple[int, int] | None
    is_plain: bool
    own: Dockerfile | None = None
    requirements: str | None = None
    own_ignore: bool = False
    roots: tuple[str, ...] = ("",)
    looks_elsewhere: bool = False

    @property
    def own_dockerfile(self) -> str | None:
        """The path of the user's own Dockerfile in the project, None for a rendered one."""
        return self.own.path if self.own else None

    @property
    def is_installed(self) -> bool:
        """Whether the requirements are known to be installed."""
        return self.own is None or self.requirements is not None

    def installs_without_cuda(self, requirements: str) -> bool:
        """Return whether the user's Dockerfile names a requirements file and has no CUDA."""
        own = self.own
        return (
            own is not None and own.is_without_cuda and posixpath.basename(requirements) in own.text
        )

    def begin_with(self, base: str) -> str:
        """Say how to have the image begin with another one."""
        return f"write FROM {base} in {self.own.path}" if self.own else f"say image.base: {base}"

    @property
    def tensorflow_tag(self) -> str | None:
        """The tag of TensorFlow's own image, None where the base is another one."""
        found = _TENSORFLOW.fullmatch(self.base or "")
        return (found["tag"] or "latest") if found else None


def of(order: LaunchRequest) -> Surroundings:
    """Return what there is around an order's code."""
    job, folder = order.job, order.folder
    path = own_file(folder, job.image.dockerfile, "Dockerfile")
    own = Dockerfile(path, _text(folder, path)) if path else None
    base = own.base if own else job.image.base or templates.BASE
    found = _PYTHON.fullmatch(base or "")
    requirements = own.requirements(folder) if own and found else None
    has_template = (folder / templates.OWN_TEMPLATES / "Dockerfile.j2").exists()
    roots, looks_elsewhere = _roots(job)
    return Surroundings(
        base,
        (3, int(found["minor"])) if found and found["minor"] else None,
        is_plain=found is not None and (bool(requirements) if own else not has_template),
        own=own,
        requirements=requirements,
        own_ignore=own_file(folder, None, ".dockerignore") is not None,
        roots=roots,
        looks_elsewhere=looks_elsewhere,
    )


def own_file(folder: Path, said: str | None, name: str) -> str | None:
    """Return the path of a file that is the user's own and not rendered, None without one."""
    if said:
        return posixpath.normpath(said)
    is_own = (folder / name).is_file() and not templates.is_ours(_text(folder, name))
    return name if is_own else None


def _text(folder: Path, path: str) -> str:
    try:
        return (folder / path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _roots(job: Job) -> tuple[tuple[str, ...], bool]:
    """Return where modules are looked for, and whether that is not all."""
    said = [path for path in job.env.get("PYTHONPATH", "").split(":") if path]
    inside = [posixpath.normpath(posixpath.join(templates.CODE, path)) for path in said]
    roots = [
        path.removeprefix(templates.CODE).removeprefix("/")
        for path in inside
        if f"{path}/".startswith(f"{templates.CODE}/")
    ]
    return tuple(dict.fromkeys(["", *roots])), len(roots) < len(said)
