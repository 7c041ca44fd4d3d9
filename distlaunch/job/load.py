"""A project folder and the command line → a Job, from whichever file format."""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from distlaunch.errors import JobFileError
from distlaunch.job import conversion, reduction_server
from distlaunch.job.names import project_name
from distlaunch.job.overrides import OverriddenDocument, Override
from distlaunch.job.schema import JobSection
from distlaunch.job.validation import validate
from distlaunch.job.vertex import SPECS, collection
from distlaunch.job.yaml_document import (
    Document,
    YamlProblem,
    display_path,
    job_file_error,
    read_document,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from distlaunch.job.ai_platform import AiPlatformFile
    from distlaunch.job.model import Cluster, Job, Pool
    from distlaunch.job.vertex.parse import VertexFile
    from distlaunch.job.yaml_document import SourceMap

FILE_NAME = "distlaunch.yaml"

_IMAGE_URI = "IMAGE_URI"  # the variable of a --config file for the image of --image
_IN_CONFIG = ("cluster", "tuning", "vertex")  # sections that a --config file replaces
_ANY_CLUSTER = {"chief": {"machine": "n1-standard-4"}}  # where the cluster comes from elsewhere


@dataclass(frozen=True, slots=True)
class LoadedJob:
    """A job, and a line for everything that was changed or ignored while it was read."""

    job: Job
    notes: tuple[str, ...] = ()


def load_job(
    folder: Path,
    *,
    config: Path | None = None,
    name: str | None = None,
    region: str | None = None,
    image: str | None = None,
    overrides: Sequence[str] = (),
    args: Sequence[str] = (),
    replace_retired: bool = False,
) -> LoadedJob:
    """Read the job of a project.

    Parameters
    ----------
    folder
        The project folder, with ``distlaunch.yaml``, which is optional with `config`.
    config
        A file in one of Google's formats (AI Platform's ``trainingInput``; Vertex AI's
        CustomJobSpec, CustomJob or HyperparameterTuningJob; YAML or JSON). It replaces the cluster
        section and wins over the rest of ``distlaunch.yaml``. ``${NAME}`` in it is an environment
        variable, ``${IMAGE_URI}`` is `image` if given.
    name, region
        Win over any file.
    image
        An existing image, for the pools without one.
    overrides
        ``a.b=c`` for any field of ``distlaunch.yaml``; they win over any file.
    args
        Appended to the program's args.
    replace_retired
        Whether a retired accelerator of `config` is replaced by the first of its replacements,
        instead of being an error.

    Raises
    ------
    JobFileError
        With every problem of the files and of `overrides`.
    DistlaunchError
        If a file cannot be read.
    UsageError
        If one of `overrides` is not an assignment.
    """
    parsed = [*map(Override.parse, overrides), *_from_options(name, region, image)]
    path = folder / FILE_NAME
    if config is None:
        loaded = LoadedJob(load_job_file(path, parsed))
    else:
        loaded = _load_with_config(path, config, image, parsed, replace_retired=replace_retired)
    return replace(loaded, job=_append_args(loaded.job, tuple(args)))


def load_job_file(path: Path, overrides: Sequence[Override] = ()) -> Job:
    """Read distlaunch.yaml.

    Raises
    ------
    JobFileError
        With every problem of the file, each with line, column, value and what was expected.
    DistlaunchError
        If the file cannot be read.
    """
    document = read_document(path, remedy="; 'distlaunch init' creates one")
    overridden = OverriddenDocument(document, document.data, overrides)
    return _to_job(path, overridden, is_complete=True)


def _from_options(name: str | None, region: str | None, image: str | None) -> list[Override]:
    given = [
        Override(("name",), name, "NAME"),
        Override(("region",), region, "--region"),
        Override(("image", "uri"), image, "--image"),
    ]
    return [each for each in given if each.value is not None]


def _load_with_config(
    path: Path,
    config: Path,
    image: str | None,
    overrides: Sequence[Override],
    *,
    replace_retired: bool,
) -> LoadedJob:
    """Read Google's file and the project's, and report the problems of both."""
    problems: list[str] = []
    base, file = None, None
    try:
        base = _load_without_cluster(path, overrides)
    except JobFileError as error:
        problems += error.problems
    try:
        file, notes = _read_config(config, image)
    except JobFileError as error:
        problems += error.problems
    if base is None or file is None:
        raise JobFileError(problems)
    # A timeout that was chosen for another program would end this one early.
    without_timeout = replace(base, scheduling=replace(base.scheduling, timeout=None))
    loaded = _translate(file, without_timeout, path.parent, image, replace_retired=replace_retired)
    notes += loaded.notes
    notes += _unused(base, loaded.job, config, path)
    job = _override(loaded.job, overrides, config)
    _check_reduction_server(job, overrides, path)
    return LoadedJob(job, tuple(notes))


def _read_optional(path: Path) -> Document:
    return read_document(path) if os.path.lexists(path) else Document("{}")


def _load_without_cluster(path: Path, overrides: Sequence[Override]) -> Job:
    """Read a job file, which may be missing, without the sections of the --config file."""
    document = _read_optional(path)
    name = project_name(path.parent.resolve().name)
    data = {"name": name} | document.data | {"cluster": _ANY_CLUSTER}
    others = [each for each in overrides if each.path[0] not in _IN_CONFIG]
    return _to_job(path, OverriddenDocument(document, data, others))


def _read_config(path: Path, image: str | None) -> tuple[AiPlatformFile | VertexFile, list[str]]:
    """Read a file in one of Google's formats, with notes about its variables."""
    given = {_IMAGE_URI: image} if image else {}
    document = read_document(path, {**os.environ, **given})
    notes = list(_variable_notes(path, document, given))
    from distlaunch.job import ai_platform

    if ai_platform.is_training_input(document.data):
        return ai_platform.read(document, path), notes
    from distlaunch.job.vertex import parse

    return parse.read(document, path), notes


def _variable_notes(path: Path, document: Document, given: dict[str, str]) -> Iterator[str]:
    for name, location in document.substituted.items():
        if name not in given:
            yield (
                f"{display_path(path)}:{location.line}:{location.column}: ${{{name}}}: replaced by "
                f"the value of {name} on this machine; write $${{{name}}} to keep the text"
            )
    for name, location in document.bare_variables.items():
        yield (
            f"{display_path(path)}:{location.line}:{location.column}: ${name}: not replaced; write "
            f"${{{name}}} for the value of {name} on this machine"
        )


def _translate(
    file: AiPlatformFile | VertexFile,
    base: Job,
    folder: Path,
    image: str | None,
    *,
    replace_retired: bool,
) -> LoadedJob:
    from distlaunch.job.ai_platform import AiPlatformFile
    from distlaunch.job.ai_platform.to_job import to_job
    from distlaunch.job.vertex import parse

    if isinstance(file, AiPlatformFile):
        job, notes = to_job(
            file, folder=folder, base=base, image=image, replace_retired=replace_retired
        )
    else:
        job, notes = parse.to_job(file, base), file.notes
    if not replace_retired:
        return LoadedJob(job, notes)
    replaced = _replace_retired(job)
    return LoadedJob(replaced.job, (*notes, *replaced.notes))


def _replace_retired(job: Job) -> LoadedJob:
    """Replace retired accelerators by the first of their replacements that the machine takes."""
    from distlaunch.job.machine_catalogue import bundled

    today = dt.datetime.now(dt.timezone.utc).date()
    notes = []

    def replace_in(pool: Pool) -> Pool:
        accelerator, count = pool.machine.accelerator, pool.machine.accelerator_count
        if accelerator is None or not bundled().is_retired(accelerator, today):
            return pool
        substitutes = bundled().replacements(accelerator, count, pool.machine.type)
        if not substitutes:
            return pool
        notes.append(
            f"replaced {count} {accelerator} on {pool.machine.type}, which Google withdrew, by "
            f"{count} {substitutes[0]} (--replace-retired)"
        )
        return replace(pool, machine=replace(pool.machine, accelerator=substitutes[0]))

    changed = replace(job, cluster=job.cluster.map_pools(replace_in))
    return LoadedJob(changed, tuple(dict.fromkeys(notes)))


def _unused(base: Job, job: Job, config: Path, path: Path) -> Iterator[str]:
    """Report the settings of distlaunch.yaml that a --config file replaces."""
    spec = base.vertex.get(SPECS[collection(base)], {})
    file, other = display_path(path), display_path(config)
    if "workerPoolSpecs" in spec:
        yield f"{file}: vertex: workerPoolSpecs are not used, as {other} defines the pools"
    if base.reduction_server and job.reduction_server is None:
        yield f"{file}: reduction_server is not used, as {other} defines worker pool 2"
    if base.scheduling.timeout is not None and job.scheduling.timeout is None:
        yield (
            f"{file}: scheduling.timeout is not used, and {other} sets none: Google's default is 7 "
            "days; use --set scheduling.timeout=… for another"
        )


def _override(job: Job, overrides: Sequence[Override], path: Path) -> Job:
    """Return a job with overrides, in whichever format it was written in `path`."""
    keys = {each.path[0] for each in overrides}
    whole = conversion.to_data(job)
    data = {key: whole[key] for key in keys if key in whole}
    required = {"name": "job", "cluster": _ANY_CLUSTER}
    document = OverriddenDocument(Document("{}"), required | data, overrides)
    overridden = _to_job(path, document, job)
    changed: dict[str, Any] = {key: getattr(overridden, key) for key in keys}
    if "cluster" in changed:
        changed["cluster"] = _keep_programs(overridden.cluster, job.cluster)
    return replace(job, **changed)


def _keep_programs(cluster: Cluster, before: Cluster) -> Cluster:
    """Return a cluster with the programs of another; new pools run what the chief runs."""
    chief, *others = [
        pool and replace(pool, program=(former or before.chief).program)
        for pool, former in zip(cluster.pools, before.pools, strict=True)
    ]
    return type(cluster)(chief or cluster.chief, *others)


def _check_reduction_server(job: Job, overrides: Sequence[Override], path: Path) -> None:
    """Check distlaunch.yaml's ``reduction_server`` against the cluster of another file."""
    document = _read_optional(path)
    overridden = OverriddenDocument(document, document.data, overrides)
    problems = _reduction_server_problems(job, overridden)
    if problems:
        raise job_file_error(path, problems)


def _reduction_server_problems(job: Job, document: SourceMap) -> list[YamlProblem]:
    if job.reduction_server is None or document.data.get(reduction_server.KEY) is None:
        return []
    message = reduction_server.problem(job)
    if message is None:
        return []
    key = tuple(message.partition(":")[0].split("."))
    return [YamlProblem(document.location(key, of_key=True), message)]


def _to_job(
    path: Path, document: SourceMap, full_job: Job | None = None, *, is_complete: bool = False
) -> Job:
    """Validate a document and return its job; sections are compared if it `is_complete`.

    `full_job` is the job of the ``vertex`` section, if the document is only a part of it.
    """
    section, problems = validate(document, JobSection)
    job = conversion.to_job(section) if section else None
    if job and is_complete:
        cross_problems = _reduction_server_problems(job, document)
        if cross_problems:
            raise job_file_error(path, [*problems, *cross_problems])
    if isinstance(document.data.get("vertex"), dict) and document.data["vertex"]:
        from distlaunch.job.vertex.passthrough import merge_passthrough

        job, vertex_problems = merge_passthrough(job, document, full_job)
        problems += vertex_problems
    if problems or job is None:
        raise job_file_error(path, problems)
    return job


def _append_args(job: Job, args: tuple[str, ...]) -> Job:
    """Append args to those of every pool that runs the chief's image."""
    if not args:
        return job
    image = _image_of(job.cluster.chief)

    def append(pool: Pool) -> Pool:
        if pool.program is None or _image_of(pool) != image:
            return pool
        return replace(pool, program=replace(pool.program, args=pool.program.args + args))

    return replace(job, args=job.args + args, cluster=job.cluster.map_pools(append))


def _image_of(pool: Pool) -> str | None:
    return pool.program.image if pool.program else None
