"""The bundled trainer in a user's project: which version, and what it is told."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from distlaunch.job.model import Job
    from distlaunch.submit.plan import LaunchRequest

ENGINE_ROOM = "distributed"
"""The folder of the engine room, beside the job's module."""

FLAGS = ("--resume", "--sync-batch-norm", "--allow-cpu", "--gpu-memory-growth", "--debug")
"""The trainer's options that take no value."""

_NUMBER = re.compile(r"-[0-9.]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Trainer:
    """The trainer that `init` copied into a project.

    Parameters
    ----------
    folder
        The folder of the package, as ``PROJECT/trainer``.
    package
        The package's name, as ``trainer``.
    version
        That of the engine room.
    options
        What the job tells it, by the option's name as it is typed (``--global-batch-size``); of one
        that is said twice, what is said last. A flag is true, or false where it is said with
        ``--no-``.
    """

    folder: Path
    package: str
    version: str
    options: Mapping[str, str | bool]

    @property
    def data(self) -> Path:
        """The module with the user's data."""
        return self.folder / "data.py"

    @property
    def model(self) -> Path:
        """The module with the user's model."""
        return self.folder / "model.py"


def find(order: LaunchRequest) -> Trainer | None:
    """Return the bundled trainer, None where the job's program is another."""
    said = words(order.job)
    package = order.job.module.rpartition(".")[0]
    if said is None or not package:
        return None
    folder = order.folder.joinpath(*package.split("."))
    version = _version(folder / ENGINE_ROOM / "__init__.py")
    return Trainer(folder, package, version, options(said)) if version else None


def options(said: Iterable[str]) -> dict[str, str | bool]:
    """Return the options among a program's arguments, by name; the last of a name wins."""
    found: dict[str, str | bool] = {}
    name = ""
    for word in said:
        if name and _is_value(word):
            found[name] = word
            name = ""
        elif word.startswith("--"):
            name = _take(word, found)
    return found


def _take(word: str, found: dict[str, str | bool]) -> str:
    """Note an option; return its name where its value may be the next word."""
    name, equals, value = word.partition("=")
    if equals:
        found[name] = value
    elif name.startswith("--no-") and f"--{name[5:]}" in FLAGS:
        found[f"--{name[5:]}"] = False
    else:
        found[name] = True
        return "" if name in FLAGS else name
    return ""


def _is_value(word: str) -> bool:
    return not word.startswith("-") or _NUMBER.fullmatch(word) is not None


def words(job: Job) -> tuple[str, ...] | None:
    """Return the arguments of the job's module, None where the chief runs something else."""
    program = job.cluster.chief.program
    if program is None:
        return job.args
    if program.image or program.command or program.module:
        return None
    return program.args


def _version(file: Path) -> str | None:
    """Return the version that a module says, without running it."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    for line in tree.body:
        match line:
            case ast.Assign(
                targets=[ast.Name(id="__version__")], value=ast.Constant(value=str(version))
            ):
                return version
    return None
