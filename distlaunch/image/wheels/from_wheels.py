"""What of an environment's Dockerfile can be done without running anything in an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.image.dockerfile import pairs_in
from distlaunch.image.environment import is_pip
from distlaunch.image.reference import Reference
from distlaunch.image.registry.config import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.image.dockerfile import Instruction
    from distlaunch.image.environment import Environment
    from distlaunch.job.model import Job

# COPY and sed bring the requirements into the image and make them fit; pip gets them from here.
_FOR_PIP = ("COPY", "WORKDIR")


@dataclass(frozen=True, slots=True)
class Installation:
    """What pip has to do in place of an engine.

    Parameters
    ----------
    base
        The image to lay the packages over.
    requirements
        The text of a requirements file.
    settings
        What the config of the environment says.
    """

    base: Reference
    requirements: str
    settings: Settings


def what_pip_does(
    job: Job, folder: Path, environment: Environment, scratch: Path
) -> Installation | None:
    """Return what pip has to do, None where the Dockerfile asks for more than pip.

    Parameters
    ----------
    folder
        The project's.
    scratch
        A folder that is there until pip is done.

    Raises
    ------
    ImageError
        If the requirements cannot be read.
    """
    stage = environment.stages[-1]
    if len(environment.stages) > 1 or not any(map(is_pip, stage.instructions)):
        return None
    env: dict[str, str] = {}
    for each in stage.instructions:
        pairs = pairs_in(each.rest) if each.word == "ENV" else None
        if pairs is not None:
            env |= pairs
        elif each.word and not _is_for_pip(each):
            return None
    base = Reference.parse(stage.base)
    return Installation(base, _requirements(job, folder, scratch), Settings(env=env))


def _is_for_pip(instruction: Instruction) -> bool:
    is_sed = instruction.word == "RUN" and instruction.rest.startswith("sed ")
    return instruction.word in _FOR_PIP or is_sed or is_pip(instruction)


def _requirements(job: Job, folder: Path, scratch: Path) -> str:
    """Lay out the requirements, and the files that they take in, and return what leads to them."""
    from distlaunch.image.requirements import has_gpus, read_requirements

    name = job.image.requirements or "requirements.txt"
    found = read_requirements(folder, name, gpu=has_gpus(job.cluster))
    if len(found.files) == 1:
        return found.files[found.name]
    for path, text in found.files.items():
        file = scratch / "requirements" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return f"-r {scratch / 'requirements' / found.name}\n"
