"""What can be known of a project's folder by reading it; nothing of it is run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from distlaunch.checks.project import (
    arguments,
    bundled_trainer,
    dockerfile,
    image_runtime,
    imports,
    requirements,
    tensorflow,
)
from distlaunch.checks.project.import_graph import reach
from distlaunch.checks.project.modules import Modules
from distlaunch.checks.project.program import broken, entry
from distlaunch.checks.project.sources import Sources
from distlaunch.checks.trainer import ENGINE_ROOM, words

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.image_runtime import Surroundings
    from distlaunch.checks.project.import_graph import Wanted
    from distlaunch.checks.project.requirements import Requirements
    from distlaunch.checks.request_view import JobRequest
    from distlaunch.checks.trainer import Trainer
    from distlaunch.submit.plan import LaunchRequest

_OWN = ("model", "data")  # modules beside the engine room that the trainer imports


def problems(
    order: LaunchRequest, asked: JobRequest, files: Collection[str] | None, trainer: Trainer | None
) -> Iterator[Problem]:
    """Yield what speaks against a project's code and requirements.

    Parameters
    ----------
    order
        What is to be launched, with an image that is made from the folder.
    asked
        What it asks of Google.
    files
        The paths of the project's files in the image, posix and relative to the folder; None where
        the image cannot be made, so that nobody can tell.
    trainer
        The bundled trainer, None for a program of the user's own.
    """
    around = image_runtime.of(order)
    listed = requirements.read(order.job, order.folder, around)
    sources = Sources(order.folder, around.python)
    if files is not None:
        modules = Modules(files, around.roots)
        place = imports.Found(order.folder, modules, listed, around)
        yield from _of_code(order, place, sources, trainer)
    if around.own:
        yield from dockerfile.unused(around.own, order.job)
    yield from _of_requirements(listed, asked, around)
    if trainer:
        yield from bundled_trainer.problems(trainer, asked, listed, order.folder, sources)
        yield from bundled_trainer.backend(order.job)
        task = order.folder.joinpath(*order.job.module.split(".")).with_suffix(".py")
        yield from arguments.problems(words(order.job) or (), order.job, task)


def _of_requirements(
    listed: Requirements, asked: JobRequest, around: Surroundings
) -> Iterator[Problem]:
    """Yield what speaks against what pip installs; a Dockerfile of one's own may not ask pip."""
    if around.is_installed:
        yield from listed.problems
        yield from requirements.clashes(listed)
        yield from tensorflow.clashes(listed, around)
        yield from requirements.unpinned(listed)
    yield from tensorflow.builds(listed, asked, around)


def _of_code(
    order: LaunchRequest, place: imports.Found, sources: Sources, trainer: Trainer | None
) -> Iterator[Problem]:
    modules, around = place.modules, place.around
    is_ours = _is_engine_room(trainer)
    found = reach(modules, sources.of, _starts(order, trainer), is_known=is_ours)
    yield from broken(modules, sources, lambda file: file in found.files or is_ours(file), around)
    if any(sources.of(file).searches_elsewhere for file in found.files):
        place = replace(place, around=replace(around, looks_elsewhere=True))
    wanted = [_as_sure(each, trainer) for each in found.wanted]
    if around.own is None:
        yield from entry(order, modules, around)
        yield from imports.problems(wanted, place)
    elif around.is_plain:
        # Where its code lies in the image is the Dockerfile's to say.
        place = replace(place, around=replace(around, looks_elsewhere=True))
        foreign = [
            each for each in wanted if each.kind == "foreign" and not modules.has_any(each.name)
        ]
        yield from imports.problems(foreign, place)


def _starts(order: LaunchRequest, trainer: Trainer | None) -> list[str]:
    """Return the modules that a program imports first, or is sure to import."""
    module = order.job.module
    own = [f"{trainer.package}.{name}" for name in _OWN] if trainer else []
    return [module, f"{module}.__main__", *own]


def _as_sure(wanted: Wanted, trainer: Trainer | None) -> Wanted:
    """Return what is asked for, as sure where it is what the trainer imports of the user's own."""
    is_own = trainer is not None and wanted.name == trainer.package
    return replace(wanted, is_sure=True) if is_own and wanted.taken in _OWN else wanted


def _is_engine_room(trainer: Trainer | None) -> Callable[[str], bool]:
    """Return what tells a file of the engine room, which is ours."""
    if trainer is None:
        return lambda _: False
    folder = f"{trainer.package.replace('.', '/')}/{ENGINE_ROOM}/"
    return lambda file: file.startswith(folder)
