"""What a project's ``data.py`` gives to its trainer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from distlaunch.checks.data.modules import Modules
from distlaunch.checks.data.values import Environment, Given, Unknown
from distlaunch.checks.trainer import ENGINE_ROOM

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from distlaunch.checks.data.expressions import Module
    from distlaunch.checks.trainer import Trainer
    from distlaunch.job.model import Job

Name = Literal["training", "validation"]


@dataclass(frozen=True, slots=True)
class Source:
    """What the functions of ``data.py`` give.

    Parameters
    ----------
    given
        By the function's name, what it gives, where that can be told.
    is_own
        Whether the training data are a data set of the user's own, and not dealt out by the
        trainer.
    acts
        Whether the data may come to be as the program begins.
    handed
        Paths of a home folder that are read by something else, with the place of the call.
    """

    given: dict[Name, Given]
    is_own: bool
    acts: bool
    handed: tuple[tuple[str, str], ...]


def read(folder: Path, job: Job, trainer: Trainer, *, is_all: bool) -> Source | None:
    """Return what a project's ``data.py`` gives, None where it cannot be read.

    Parameters
    ----------
    is_all
        Whether the image sets no variables that the program may ask for.
    """
    engine_room = f"{trainer.package}.{ENGINE_ROOM}"
    modules = Modules(folder, Environment(_variables(job), is_all), engine_room)
    module = modules.read(f"{trainer.package}.data")
    if module is None:
        return None
    given = dict(_given(modules, module))
    training = given.get("training")
    is_own = training.kind == "Dataset" if training else not _knows_ours(module, engine_room)
    return Source(given, is_own, modules.acts, tuple(modules.handed))


def _given(modules: Modules, module: Module) -> Iterator[tuple[Name, Given]]:
    names: tuple[Name, ...] = ("training", "validation")
    for name in names:
        try:
            found = modules.call(module, name)
        except (Unknown, RecursionError):  # the latter of an endless elif
            continue
        if isinstance(found, Given):
            yield name, found


def _knows_ours(module: Module, engine_room: str) -> bool:
    """Whether a module has what makes the trainer deal the data out."""
    ours = (f"{engine_room}.input", f"{engine_room}.*")
    return any(name.startswith(ours) for name in module.imported)


def _variables(job: Job) -> dict[str, str]:
    program = job.cluster.chief.program
    return {**job.env, **(program.env if program else {})}
