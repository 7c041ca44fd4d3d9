"""Find the bundled trainer in a project, and read its arguments."""

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

TRAINER_LIBRARY = "distributed"
"""The folder of the trainer library, beside the job's module."""

FLAGS = ("--resume", "--sync-batch-norm", "--allow-cpu", "--gpu-memory-growth", "--debug")
"""The trainer's options that take no value."""

_NUMBER = re.compile(r"-[0-9.]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Trainer:
    """The trainer that `init` copied into a project.

    Parameters
    ----------
    folder
        The folder of the package, e.g. ``PROJECT/trainer``.
    package
        The package's name, e.g. ``trainer``.
    version
        The version of the trainer library.
    options
        The job's arguments by option (``--global-batch-size``); the last one of an option wins. A
        flag is true, or false with ``--no-``.
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


def find_trainer(order: LaunchRequest) -> Trainer | None:
    """Return the bundled trainer, None if the job's program is another one."""
    arguments = program_arguments(order.job)
    package = order.job.module.rpartition(".")[0]
    if arguments is None or not package:
        return None
    folder = order.folder.joinpath(*package.split("."))
    version = _version(folder / TRAINER_LIBRARY / "__init__.py")
    return Trainer(folder, package, version, parse_options(arguments)) if version else None


def parse_options(arguments: Iterable[str]) -> dict[str, str | bool]:
    """Return the options among a program's arguments; the last one of an option wins."""
    options: dict[str, str | bool] = {}
    pending = ""  # the option whose value may be the next word
    for word in arguments:
        name, equals, value = word.partition("=")
        if pending and (not word.startswith("-") or _NUMBER.fullmatch(word)):
            options[pending] = word
            pending = ""
        elif word.startswith("--"):
            is_negated = name.startswith("--no-") and f"--{name[5:]}" in FLAGS
            options[f"--{name[5:]}" if is_negated else name] = value if equals else not is_negated
            pending = "" if equals or is_negated or name in FLAGS else name
    return options


def program_arguments(job: Job) -> tuple[str, ...] | None:
    """Return the arguments of the job's module, None if the chief runs another program."""
    program = job.cluster.chief.program
    if program is None:
        return job.args
    if program.image or program.command or program.module:
        return None
    return program.args


def _version(file: Path) -> str | None:
    """Return the version in a module, which is not executed."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    for statement in tree.body:
        match statement:
            case ast.Assign(
                targets=[ast.Name(id="__version__")], value=ast.Constant(value=str(version))
            ):
                return version
    return None
