"""What of an environment's Dockerfile can be done without running anything in an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.image import cuda
from distlaunch.image.dockerfile import parse_pairs
from distlaunch.image.environment import is_pip
from distlaunch.image.reference import Reference
from distlaunch.image.registry.client import Registry
from distlaunch.image.registry.config import Settings, environment_variables

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.image.dockerfile import Instruction
    from distlaunch.image.environment import Environment
    from distlaunch.job.model import Job

# COPY and sed bring the requirements into the image and make them fit; pip gets them from here.
_FOR_PIP = ("COPY", "WORKDIR")
# Docker's, for an image that sets none:
# https://github.com/moby/buildkit/blob/master/util/system/path.go
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


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
    link_cuda
        Whether the CUDA libraries get symlinks.
    """

    base: Reference
    requirements: str
    settings: Settings
    link_cuda: bool


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
        If the requirements cannot be read, or the base image's registry refuses.
    """
    stage = environment.stages[-1]
    if len(environment.stages) > 1 or not any(map(is_pip, stage.instructions)):
        return None
    base = Reference.parse(stage.base)
    with Registry(base) as registry:
        of_base = {"PATH": _DEFAULT_PATH, **environment_variables(registry.image().config)}
    env: dict[str, str] = {}
    for each in stage.instructions:
        pairs = parse_pairs(each.rest, {**of_base, **env}) if each.word == "ENV" else None
        if pairs is not None:
            env |= pairs
        elif each.word and not _can_be_done(each):
            return None
    link_cuda = any(map(cuda.is_link_step, stage.instructions))
    return Installation(base, _requirements(job, folder, scratch), Settings(env=env), link_cuda)


def _can_be_done(instruction: Instruction) -> bool:
    is_sed = instruction.word == "RUN" and instruction.rest.startswith("sed ")
    is_for_pip = instruction.word in _FOR_PIP or is_sed or is_pip(instruction)
    return is_for_pip or cuda.is_link_step(instruction)


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
