"""The Python of a job on Slurm, read from the files of its environment.

A project's file may name any program, so it is not run here: only the job runs it.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from distlaunch.checks.problem import error, warning
from distlaunch.checks.project.image_runtime import ImageRuntime
from distlaunch.checks.project.requirements import ImageRequirements
from distlaunch.engines.slurm.batch import python_of
from distlaunch.files import read_regular
from distlaunch.resources import INSTALL_TENSORFLOW, KERAS, TENSORFLOW

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from distlaunch.checks.problem import Problem
    from distlaunch.job.model import Job

_NEEDED = {"tensorflow": TENSORFLOW, "keras": KERAS}
_BUILDS = ("tensorflow", "tensorflow-cpu")
_OLDEST_PYTHON = (3, 10)
_VERSION = re.compile(r"^version(?:_info)? *= *3\.([0-9]+)", re.MULTILINE)  # in pyvenv.cfg
_PROGRAM = re.compile(r"python3\.([0-9]+)")
_BASE = re.compile(r"^home *= *(.+)/bin$", re.MULTILINE)
_SEES_BASE = re.compile(r"^include-system-site-packages *= *true", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True)
class InstalledThere(ImageRequirements):
    """What is installed in the Python of a job on Slurm, as far as that is known.

    `versions` are those of distributions by normalized name, `modules` the importable names at the
    top. Without the environment's files both are empty, and `is_known` is false.
    """

    path: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    modules: frozenset[str] = frozenset()

    @property
    def is_known(self) -> bool:
        """Whether the environment's files are here."""
        return bool(self.modules)

    def describe_missing(self, module: str, distribution: str) -> tuple[str, str]:
        return (
            f"{module} is not installed in {self.path}",
            f"run '{self.path} -m pip install {distribution}'",
        )

    def provide(self, modules: Sequence[str]) -> bool:
        return modules[0].partition(".")[0] in self.modules


def read_environment(job: Job) -> InstalledThere:
    """Return what is installed in a job's Python: a virtual environment's, conda's or a system's.

    Its version is that of ``pyvenv.cfg`` or of the program's name, such as ``python3.12``.
    """
    path = python_of(job)
    version, folders = (None, []) if job.slurm.container else _find_packages(Path(path))
    runtime = ImageRuntime(None, version, is_plain=True)
    found = [each for each in distributions(path=[*map(str, folders)]) if each.metadata["Name"]]
    modules = [name for each in found for name in (each.read_text("top_level.txt") or "").split()]
    modules += [entry.name.partition(".")[0] for each in folders for entry in each.iterdir()]
    versions: dict[str, str] = {
        canonicalize_name(each.metadata["Name"]): each.version for each in reversed(found)
    }
    return InstalledThere(runtime, path=path, versions=versions, modules=frozenset(modules))


def _find_packages(program: Path) -> tuple[tuple[int, int] | None, list[Path]]:
    """Return the version of a Python and the folders of its packages, the first ones first."""
    prefixes = [program.parent.parent]
    settings = _text(prefixes[0] / "pyvenv.cfg")
    minor = _VERSION.search(settings) or _PROGRAM.fullmatch(program.resolve().name)
    if minor is None:
        return None, []
    if _SEES_BASE.search(settings):
        prefixes += [Path(match[1]) for match in _BASE.finditer(settings)]
    lib = f"python3.{minor[1]}"
    names = (f"lib/{lib}", f"lib64/{lib}", f"local/lib/{lib}", "lib/python3")
    kinds = ("site-packages", "dist-packages")
    paths = [each / name / kind for each in prefixes for name in names for kind in kinds]
    folders = [path for path in paths if _is_folder(path)]
    for file in [file for folder in folders for file in sorted(folder.glob("*.pth"))]:
        lines = [file.parent / line for line in filter(None, _text(file).splitlines())]
        folders += filter(_is_folder, lines)  # the other lines, Python would run
    return (3, int(minor[1])), folders


def _is_folder(path: Path) -> bool:
    with suppress(OSError, ValueError):  # a line of code may be too long for a path
        return path.is_dir() and os.access(path, os.R_OK | os.X_OK)
    return False


def _text(file: Path) -> str:
    try:
        return read_regular(file).decode(errors="replace")
    except (OSError, ValueError):
        return ""


def problems(job: Job, there: InstalledThere, *, needs_trainer: bool) -> Iterator[Problem]:
    """Yield what is wrong with the Python that the tasks run, and what is not verified of it."""
    if job.slurm.container:
        return
    path, where, python = there.path, "slurm.python", there.runtime.python
    if shutil.which(path) is None:
        remedy = "name the Python of an environment that all nodes share"
        what = f"{path}: cannot be run here" if Path(path).exists() else f"{path}: no such file"
        yield error("slurm-python", where, what, remedy)
        return
    if not there.is_known:
        what = f"not verified: the packages of {path}, which belongs to no environment here"
        remedy = "name the bin/python of a virtual environment or of conda"
        yield warning("slurm-python", where, what, remedy)
        return
    if python and python < _OLDEST_PYTHON:
        what = f"{path} is Python {python[0]}.{python[1]}; the trainer needs 3.10 or later"
        yield error("slurm-python", where, what, "make an environment with a later Python")
    for name, needed in _NEEDED.items() if needs_trainer else ():
        builds = _BUILDS if name == "tensorflow" else (name,)
        version = next((there.versions[each] for each in builds if each in there.versions), None)
        install = INSTALL_TENSORFLOW.replace("pip", f"{path} -m pip", 1)
        if version is None:
            what = f"{name} is not installed in {path}"
            yield error("slurm-python", where, what, f"run {install}")
        elif version not in SpecifierSet(needed, prereleases=True):
            what = f"{path} has {name} {version}; the trainer needs {name}{needed}"
            yield error("slurm-python", where, what, f"run {install}")
