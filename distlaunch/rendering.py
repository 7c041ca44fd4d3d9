"""A Job and templates → Dockerfile, .dockerignore and config.yaml, to read or to use by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.job.model import Job

Format = Literal["vertex", "ai-platform"]

# An exact version, so that the same project gives the same image next year.
BASE = "python:3.12.12-slim-bookworm"
CODE = "/app"  # where the project's files lie in the image


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a project's image is made by.

    Parameters
    ----------
    dockerfile
        The Dockerfile's text: the user's own, or a rendered one with the stages ``environment``
        (base and requirements) and, last, the code in `CODE`.
    ignore
        The text of the ignore file that says what the context is: the user's own, or a rendered
        one.
    own_dockerfile, own_ignore
        Which file of the user's own that is, relative to the project's folder; None for a rendered
        one. With a Dockerfile of one's own only the engine can build.
    """

    dockerfile: str
    ignore: str
    own_dockerfile: Path | None = None
    own_ignore: Path | None = None


def recipe(job: Job, folder: Path) -> Recipe:
    """Return what the project's image is made by: files of the user's own before rendered ones.

    ``image.dockerfile`` names the user's Dockerfile; without it one that is called Dockerfile is,
    unless `render` wrote it and nobody has changed it since. The same holds for .dockerignore.
    """
    raise NotImplementedError


def dockerfile(job: Job, folder: Path, *, pip_secret: bool = False) -> str:
    """Render the Dockerfile.

    Parameters
    ----------
    folder
        The project's folder. A template in its ``templates`` takes the place of ours.
    pip_secret
        Whether the step with pip gets the build secret ``pip.conf`` as its configuration. That
        needs BuildKit, which docker-py doesn't speak.

    Raises
    ------
    ImageError
        If a value cannot stand in a Dockerfile, or a template of the user's own is wrong.
    """
    raise NotImplementedError


def dockerignore(job: Job, folder: Path) -> str:
    """Render .dockerignore: nothing but the module's package, the requirements and `include`.

    Raises
    ------
    ImageError
        If a path cannot stand in it, or is not in the project's folder.
    """
    raise NotImplementedError


def config(job: Job, *, format: Format, image: str, folder: Path | None = None) -> str:  # noqa: A002
    """Render config.yaml.

    Parameters
    ----------
    format
        ``vertex``: what ``gcloud ai custom-jobs create --config`` takes (or ``hp-tuning-jobs``, for
        a job that is tuned). ``ai-platform``: the file with masterType.
    image
        What stands in it as the image of the job's own program.
    folder
        The project's folder, for templates of its own.
    """
    raise NotImplementedError


def is_ours(text: str) -> bool:
    """Whether a file was rendered by us and has not been changed since."""
    raise NotImplementedError
