"""A project's folder and what the command line says → a Job, whatever format it is written in."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from distlaunch.errors import JobFileError
from distlaunch.job import project_file
from distlaunch.job.names import project_name
from distlaunch.job.overrides import Override
from distlaunch.job.text_file import read_text
from distlaunch.job.validation import refusal, shown
from distlaunch.job.vertex import SPECS, collection
from distlaunch.job.yaml_document import Document, YamlProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from distlaunch.job.ai_platform import AiPlatformFile
    from distlaunch.job.model import Job, Pool


@dataclass(frozen=True, slots=True)
class Loaded:
    """A job as it was read.

    Parameters
    ----------
    job
        The job.
    notes
        What a translation changed or dropped, a line each with the reason.
    """

    job: Job
    notes: tuple[str, ...] = ()


def load_job(
    folder: Path,
    *,
    config: Path | None = None,
    name: str | None = None,
    region: str | None = None,
    image: str | None = None,
    sets: Sequence[str] = (),
    args: Sequence[str] = (),
) -> Loaded:
    """Read the job of a project.

    Parameters
    ----------
    folder
        The project's folder, with ``distlaunch.yaml``; that may be missing where `config` is given.
    config
        A file in one of Google's formats (AI Platform's ``trainingInput``; Vertex AI's
        CustomJobSpec, CustomJob or HyperparameterTuningJob; YAML or JSON). It takes the place of
        the cluster section, and what else it says wins over ``distlaunch.yaml``. ``${NAME}`` in it
        stands for a variable of the environment, ``${IMAGE_URI}`` for `image` where that is given.
    name, region
        What wins over any file.
    image
        An image that is there already, for the pools without one of their own.
    sets
        ``a.b=c`` for any field of ``distlaunch.yaml``; they win over any file.
    args
        What is appended to the program's args.

    Raises
    ------
    JobFileError
        With every problem of the files and of `sets`.
    DistlaunchError
        If a file cannot be read.
    UsageError
        If one of `sets` is no assignment.
    """
    overrides = [*map(Override.parse, sets), *_options(name, region, image)]
    path = folder / project_file.FILE_NAME
    if config is None:
        loaded = Loaded(project_file.load(path, overrides))
    else:
        loaded = _load_with_config(path, config, image, overrides)
    return replace(loaded, job=_with_args(loaded.job, tuple(args)))


def _options(name: str | None, region: str | None, image: str | None) -> list[Override]:
    """Return what has an option of its own on the command line."""
    given = [
        Override(("name",), name, "NAME"),
        Override(("region",), region, "--region"),
        Override(("image", "uri"), image, "--image"),
    ]
    return [each for each in given if each.value is not None]


def _load_with_config(
    path: Path, config: Path, image: str | None, overrides: Sequence[Override]
) -> Loaded:
    """Read Google's file over the project's; where both are broken, tell both."""
    problems: list[str] = []
    base, lay_over = None, None
    try:
        base = project_file.load_without_cluster(path, overrides, _folder_name(path.parent))
    except JobFileError as error:
        problems += error.problems
    try:
        lay_over = _read_config(config, path.parent, image)
    except JobFileError as error:
        problems += error.problems
    if base is None or lay_over is None:
        raise JobFileError(problems)
    loaded = lay_over(base)
    job = project_file.override(loaded.job, overrides, config)
    project_file.check_reduction_server(job, overrides, path)
    return replace(loaded, job=job)


def _folder_name(folder: Path) -> str:
    return project_name(folder.resolve().name)


def _read_config(path: Path, folder: Path, image: str | None) -> Callable[[Job], Loaded]:
    """Read a file in one of Google's formats; what is returned lays it over the project's job."""
    variables = {**os.environ, **({"IMAGE_URI": image} if image else {})}
    try:
        document = Document(read_text(path), variables)
    except YamlProblem as problem:
        raise refusal(path, [problem]) from None
    from distlaunch.job import ai_platform

    if ai_platform.is_training_input(document.data):
        return _legacy(ai_platform.read(document, path), folder, image)
    from distlaunch.job.vertex import parse as vertex_file

    file = vertex_file.read(document, path)

    def lay_over(base: Job) -> Loaded:
        job = vertex_file.to_job(file, base)
        return Loaded(job, (*file.notes, *_unused(base, job, path, folder)))

    return lay_over


def _unused(base: Job, job: Job, config: Path, folder: Path) -> Iterator[str]:
    """Tell of pools in the project's own file, which the other file's take the place of."""
    spec = base.vertex.get(SPECS[collection(base)], {})
    file, other = shown(folder / project_file.FILE_NAME), shown(config)
    if "workerPoolSpecs" in spec:
        yield f"{file}: vertex: workerPoolSpecs are not used, as {other} says what the pools are"
    if base.reduction_server and job.reduction_server is None:
        yield f"{file}: reduction_server is not used, as {other} says what worker pool 2 is"


def _legacy(file: AiPlatformFile, folder: Path, image: str | None) -> Callable[[Job], Loaded]:
    from distlaunch.job.ai_platform.to_job import to_job

    def lay_over(base: Job) -> Loaded:
        translation = to_job(file, folder=folder, base=base, image=image)
        return Loaded(translation.job, translation.notes)

    return lay_over


def _with_args(job: Job, args: tuple[str, ...]) -> Job:
    """Append args to those of every pool that runs what the chief runs."""
    if not args:
        return job
    image = _image_of(job.cluster.chief)

    def with_args(pool: Pool) -> Pool:
        if pool.program is None or _image_of(pool) != image:
            return pool
        return replace(pool, program=replace(pool.program, args=pool.program.args + args))

    return replace(job, args=job.args + args, cluster=job.cluster.map_pools(with_args))


def _image_of(pool: Pool) -> str | None:
    return pool.program.image if pool.program else None
