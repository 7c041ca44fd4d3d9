"""distlaunch.yaml → Job, or all of its problems at once with line and column."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distlaunch.job import conversion, reduction_server
from distlaunch.job.overrides import Overridden
from distlaunch.job.schema import JobSection
from distlaunch.job.text_file import read_text
from distlaunch.job.validation import refusal, validate
from distlaunch.job.yaml_document import Document, YamlProblem

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from distlaunch.job.model import Cluster, Job, Pool
    from distlaunch.job.overrides import Override
    from distlaunch.job.yaml_document import Marked

FILE_NAME = "distlaunch.yaml"
_REMEDY = "; 'distlaunch init' makes one"
_OF_THE_OTHER = ("cluster", "tuning", "vertex")
_NO_CLUSTER = {"chief": {"machine": "n1-standard-4"}}  # of a job whose cluster comes later


def load(path: Path, overrides: Sequence[Override] = ()) -> Job:
    """Read a job file.

    Parameters
    ----------
    path
        The file, ``distlaunch.yaml`` as a rule.
    overrides
        What the command line says over it.

    Raises
    ------
    JobFileError
        With every problem of the file, each with line, column, value and what was expected.
    DistlaunchError
        If the file cannot be read.
    """
    document = _document(path)
    marked = Overridden(document, document.data, overrides)
    return _job(path, marked, is_complete=True)


def load_without_cluster(path: Path, overrides: Sequence[Override], name: str) -> Job:
    """Read a job file, which may be missing, beside another that says what the cluster is.

    Parameters
    ----------
    path, overrides
        As for `load`; a cluster in the file, and what is said over a section that the other file
        may have, is passed over.
    name
        The job's name where the file does not say it.
    """
    document = _document(path) if os.path.lexists(path) else Document("{}")
    data = {"name": name} | document.data | {"cluster": _NO_CLUSTER}
    others = [each for each in overrides if each.path[0] not in _OF_THE_OTHER]
    return _job(path, Overridden(document, data, others))


def override(job: Job, overrides: Sequence[Override], path: Path) -> Job:
    """Return a job with what the command line says laid over it.

    Parameters
    ----------
    job
        The job, whatever it was read from.
    overrides
        Values for some fields of distlaunch.yaml.
    path
        The file that problems are told of that lie in no override.

    Raises
    ------
    JobFileError
        With every problem.
    """
    keys = {each.path[0] for each in overrides}
    whole = conversion.to_data(job)
    data = {key: whole[key] for key in keys if key in whole}
    stand_ins = {"name": "job", "cluster": _NO_CLUSTER}
    over = _job(path, Overridden(Document("{}"), stand_ins | data, overrides), job)
    changed: dict[str, Any] = {key: getattr(over, key) for key in keys}
    if "cluster" in changed:
        changed["cluster"] = _with_programs(over.cluster, job.cluster)
    return replace(job, **changed)


def check_reduction_server(job: Job, overrides: Sequence[Override], path: Path) -> None:
    """Check the section ``reduction_server`` of a job whose cluster another file describes.

    Parameters
    ----------
    job
        The job, with its cluster.
    overrides
        Values from the command line.
    path
        The job file, which may be missing.

    Raises
    ------
    JobFileError
        If such a job cannot have a Reduction Server.
    """
    document = _document(path) if os.path.lexists(path) else Document("{}")
    marked = Overridden(document, document.data, overrides)
    problems = _reduction_server_problems(job, marked)
    if problems:
        raise refusal(path, problems)


def _reduction_server_problems(job: Job, marked: Marked) -> list[YamlProblem]:
    if job.reduction_server is None or marked.data.get(reduction_server.KEY) is None:
        return []
    what = reduction_server.problem(job)
    if what is None:
        return []
    key = tuple(what.partition(":")[0].split("."))
    return [YamlProblem(marked.place(key, of_key=True), what)]


def _document(path: Path) -> Document:
    try:
        return Document(read_text(path, remedy=_REMEDY))
    except YamlProblem as problem:
        raise refusal(path, [problem]) from None


def _job(path: Path, marked: Marked, whole: Job | None = None, *, is_complete: bool = False) -> Job:
    """Return what the data says; a bag of Google's fields is checked against `whole`, if given.

    Sections are checked against each other where the data `is_complete`.
    """
    section, problems = validate(marked, JobSection)
    job = conversion.to_job(section) if section else None
    if job and is_complete and (found := _reduction_server_problems(job, marked)):
        raise refusal(path, [*problems, *found])
    if isinstance(marked.data.get("vertex"), dict) and marked.data["vertex"]:
        from distlaunch.job.vertex.passthrough import take_in

        job, found = take_in(job, marked, whole)
        problems += found
    if problems or job is None:
        raise refusal(path, problems)
    return job


def _with_programs(cluster: Cluster, before: Cluster) -> Cluster:
    """Return a cluster whose pools run what they ran before; new ones run what the chief runs."""

    def pool(now: Pool | None, then: Pool | None) -> Pool | None:
        return now and replace(now, program=(then or before.chief).program)

    return replace(
        cluster,
        chief=replace(cluster.chief, program=before.chief.program),
        workers=pool(cluster.workers, before.workers),
        parameter_servers=pool(cluster.parameter_servers, before.parameter_servers),
        evaluators=pool(cluster.evaluators, before.evaluators),
    )
