"""A project folder and the command line → a Job, from whichever file format."""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch.errors import Diagnostic, JobFileError
from distlaunch.files import display_path
from distlaunch.job import reduction_server
from distlaunch.job.model import Job
from distlaunch.job.names import project_name
from distlaunch.job.overrides import Override, job_data, override
from distlaunch.job.schema import JobSection
from distlaunch.job.tasks import POOL_ROLES
from distlaunch.job.validation import validate
from distlaunch.job.vertex import SPECS, collection
from distlaunch.job.yaml_document import Document, YamlProblem, job_file_error, read_document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from distlaunch.job.model import Cluster, Pool

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
    engine: str | None = None,
    overrides: Sequence[str] = (),
    args: Sequence[str] = (),
    replace_retired: bool = False,
) -> LoadedJob:
    """Read the job of a project; all problems of files and overrides are one JobFileError.

    `config` is a file in one of Google's formats (AI Platform's ``trainingInput``; Vertex AI's
    CustomJobSpec, CustomJob or HyperparameterTuningJob; YAML or JSON). It replaces the cluster
    section and wins over the rest of ``distlaunch.yaml``, which may then be missing. ``${NAME}`` in
    it is an environment variable, ``${IMAGE_URI}`` is `image` if given.

    `name`, `region`, `engine` and `overrides` (``a.b=c`` for any field of ``distlaunch.yaml``) win
    over any file; `image` is an existing image for the pools without one; `args` are appended to
    the program's. With `replace_retired`, a retired accelerator of `config` is replaced by the
    first of its replacements, instead of being an error.
    """
    options = [
        Override(("name",), name, "NAME"),
        Override(("region",), region, "--region"),
        Override(("image", "uri"), image, "--image"),
        Override(("engine",), engine, "--engine"),
    ]
    given = [option for option in options if option.value is not None]
    parsed = [*map(Override.parse, overrides), *given]
    path = folder / FILE_NAME
    if config is None:
        loaded = LoadedJob(load_job_file(path, parsed))
    else:
        loaded = _load_with_config(path, config, image, parsed, replace_retired=replace_retired)
    return replace(loaded, job=_append_args(loaded.job, tuple(args)))


def load_job_file(path: Path, overrides: Sequence[Override] = ()) -> Job:
    """Read distlaunch.yaml; all its problems are one JobFileError."""
    remedy = job_file_above(path.parent) or "'distlaunch init' creates one"
    document = read_document(path, remedy=remedy)
    override(document, overrides)
    job = _to_job(path, document)
    _check_reduction_server(job, path, document)
    return _with_source_folder(job, path.parent)


def job_file_above(folder: Path) -> str:
    """Return how to get to the job file of a parent folder, empty if none has one."""
    for parent in folder.absolute().parents:
        if (parent / FILE_NAME).is_file():
            way = os.path.relpath(parent, folder)
            return f"it is in {way}: run 'cd {way}' first"
    return ""


def _load_with_config(
    path: Path,
    config: Path,
    image: str | None,
    overrides: Sequence[Override],
    *,
    replace_retired: bool,
) -> LoadedJob:
    """Read Google's file and the project's, and report the problems of both."""
    problems: list[Diagnostic] = []
    base, translate = None, None
    try:
        base = _load_without_cluster(path, overrides)
    except JobFileError as error:
        problems += error.problems
    try:
        translate, notes = _read_config(config, path.parent, image, replace_retired=replace_retired)
    except JobFileError as error:
        problems += error.problems
    if base is None or translate is None:
        raise JobFileError(problems=problems)
    # A timeout that was chosen for another program would end this one early.
    without_timeout = replace(base, scheduling=replace(base.scheduling, timeout=None))
    job, more_notes = translate(without_timeout)
    notes += more_notes
    if replace_retired:
        job, more_notes = _replace_retired(job)
        notes += more_notes
    notes += _unused(base, job, config, path)
    job = _override(job, overrides, config)
    _check_reduction_server(job, path, override(_read_optional(path), overrides))
    return LoadedJob(_with_source_folder(job, path.parent), tuple(notes))


def _read_optional(path: Path) -> Document:
    return read_document(path) if os.path.lexists(path) else Document("{}")


def _load_without_cluster(path: Path, overrides: Sequence[Override]) -> Job:
    """Read a job file, which may be missing, without the sections of the --config file."""
    document = _read_optional(path)
    name = project_name(path.parent.resolve().name)
    data = {"name": name} | document.data | {"cluster": _ANY_CLUSTER}
    others = [each for each in overrides if each.path[0] not in _IN_CONFIG]
    return _to_job(path, override(document, others, data))


def _read_config(
    path: Path, folder: Path, image: str | None, *, replace_retired: bool
) -> tuple[Callable[[Job], tuple[Job, tuple[str, ...]]], list[str]]:
    """Read a file in one of Google's formats.

    Returns a function that fills in what distlaunch.yaml sets, with notes, and notes about the
    file's variables.
    """
    given = {_IMAGE_URI: image} if image else {}
    remedy = "correct --config: it is relative to the current folder"
    document = read_document(path, {**os.environ, **given}, remedy=remedy)
    notes = list(_variable_notes(path, document, given))
    from distlaunch.job import ai_platform
    from distlaunch.job.ai_platform.to_job import to_job
    from distlaunch.job.vertex import to_job as vertex_to_job

    if ai_platform.is_training_input(document.data):
        file = ai_platform.read(document, path)
        return partial(
            to_job, file, folder=folder, image=image, replace_retired=replace_retired
        ), notes
    return partial(vertex_to_job.to_job, *vertex_to_job.read(document, path)), notes


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


def _replace_retired(job: Job) -> tuple[Job, tuple[str, ...]]:
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
    return changed, tuple(dict.fromkeys(notes))


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
    data = {key: value for key, value in job_data(job).items() if key in keys}
    required = {"name": "job", "cluster": _ANY_CLUSTER}
    document = override(Document("{}"), overrides, required | data)
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


def _check_reduction_server(job: Job, path: Path, document: Document) -> None:
    """Check distlaunch.yaml's ``reduction_server`` against the clusters, of whichever file."""
    if not job.reduction_server or document.data.get(reduction_server.KEY) is None:
        return
    for cluster in job.clusters:
        if problem := reduction_server.problem(replace(job, cluster=cluster)):
            location = document.location(tuple(problem.where.split(".")), of_key=True)
            reason = Diagnostic(problem.what, problem.remedy).line
            other = "" if cluster == job.cluster else "on machines of scheduling.machines: "
            raise job_file_error(path, [YamlProblem(location, other + reason, problem.where)])


def _to_job(path: Path, document: Document, full_job: Job | None = None) -> Job:
    """Validate a document and return its job.

    `full_job` is the job of the ``vertex`` section, if the document is only a part of it.
    """
    section, problems = validate(document, JobSection)
    job = _on_first_machines(Job(**dict(section))) if section else None
    problems += _missing_machines(document, job)
    programs = [key for key in ("script", "script_module") if document.data.get(key) is not None]
    programs += [key for key in ("module",) if key in document.data]
    if len(programs) > 1:
        key = programs[0]
        got = "both" if len(programs) == 2 else "all"
        message = f"expected one of module, script and script_module, got {got}; remove one"
        problems.append(YamlProblem(document.location((key,), of_key=True), message, key))
    if document.data.get("trainer_options") and not (job is None or job.is_script):
        message = "is for script and script_module; options of module go into args"
        location = document.location(("trainer_options",), of_key=True)
        problems.append(YamlProblem(location, message, "trainer_options"))
    if isinstance(document.data.get("vertex"), dict) and document.data["vertex"]:
        from distlaunch.job.vertex.to_job import merge_passthrough

        job, vertex_problems = merge_passthrough(job, document, full_job)
        problems += vertex_problems
    if problems or job is None:
        raise job_file_error(path, problems)
    return job


def _on_first_machines(job: Job) -> Job:
    """Return a job on the first of ``scheduling.machines`` where its cluster has no machines."""
    if job.is_on_slurm or not job.scheduling.machines or job.cluster.chief.machine.type:
        return job
    return replace(job, cluster=job.cluster.with_machines(job.scheduling.machines[0]))


def _missing_machines(document: Document, job: Job | None) -> Iterator[YamlProblem]:
    """Yield the pools without a machine type, which Vertex AI needs.

    A pool without any machine may have got one of ``scheduling.machines``.
    """
    cluster, scheduling = document.data.get("cluster"), document.data.get("scheduling")
    if document.data.get("engine") == "slurm" or not isinstance(cluster, dict):
        return
    if job is None and isinstance(scheduling, dict) and scheduling.get("machines"):
        return
    for role in POOL_ROLES:
        pool = cluster.get(role.field)
        if pool is None and role.task_type == "chief" and role.field in cluster:
            pool = {}
        if not isinstance(pool, dict) or pool.get("machine") is not None:
            continue
        has_got = job and not pool.get("accelerator") and getattr(job.cluster, role.field)
        if not has_got or not has_got.machine.type:
            path = ("cluster", role.field, "machine")
            yield YamlProblem(document.location(path, of_key=True), "is missing", ".".join(path))


def job_from_data(data: dict[str, Any], overrides: Sequence[str], args: Sequence[str]) -> Job:
    """Return the job of data that `job_data` returned, with overrides and more arguments."""
    document = override(Document("{}"), map(Override.parse, overrides), data)
    return _append_args(_to_job(Path(FILE_NAME), document), tuple(args))


def _with_source_folder(job: Job, folder: Path) -> Job:
    """Set PYTHONPATH to src/ if the job's module is there and nothing else sets it."""
    module = (job.script_module or job.module).partition(".")[0]
    paths = [[folder / each / name for name in (module, f"{module}.py")] for each in (".", "src")]
    is_there = [any(path.exists() for path in pair) for pair in paths]
    dockerfile = folder / (job.image.dockerfile or "Dockerfile")
    is_set = dockerfile.is_file() and b"PYTHONPATH" in dockerfile.read_bytes()
    is_set = is_set or "PYTHONPATH" in job.env or bool(job.image.uri or job.script)
    env = {"PYTHONPATH": "src"} if is_there == [False, True] and not is_set else {}
    return replace(job, env={**job.env, **env})


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
