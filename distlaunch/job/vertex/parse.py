"""A file in Vertex AI's format → Job: a CustomJobSpec, a CustomJob or a HyperparameterTuningJob.

The job carries the whole file along, so that it can be written again without loss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from distlaunch.errors import did_you_mean
from distlaunch.job import reduction_server, vertex
from distlaunch.job.model import Cluster, Job, Scheduling
from distlaunch.job.validation import refusal, shown
from distlaunch.job.vertex import reading
from distlaunch.job.vertex.rules import broken_rules
from distlaunch.job.vertex.tuning import read_tuning
from distlaunch.job.wording import describe, dotted
from distlaunch.job.yaml_document import YamlProblem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from distlaunch.job.vertex.messages import Kind
    from distlaunch.job.vertex.proto import Parsed
    from distlaunch.job.yaml_document import Document

TOLD_BY_GOOGLE = frozenset(
    {
        "name",
        "state",
        "createTime",
        "startTime",
        "endTime",
        "updateTime",
        "error",
        "webAccessUris",
        "satisfiesPzs",
        "satisfiesPzi",
        "trials",
    }
)  # "output only" in Google's description of both kinds of job
_TOPS: dict[str, Kind] = {
    "studySpec": "HyperparameterTuningJob",
    "study_spec": "HyperparameterTuningJob",
    "trialJobSpec": "HyperparameterTuningJob",
    "trial_job_spec": "HyperparameterTuningJob",
    "jobSpec": "CustomJob",
    "job_spec": "CustomJob",
    "workerPoolSpecs": "CustomJobSpec",
    "worker_pool_specs": "CustomJobSpec",
}
_SHAPES = "trainingInput, workerPoolSpecs, jobSpec or studySpec at the top"


@dataclass(frozen=True, slots=True)
class VertexFile:
    """A file in Vertex AI's format.

    Parameters
    ----------
    path
        The file.
    collection
        Where Vertex AI keeps such jobs.
    body
        What it says, as the body of the call that makes the job.
    notes
        What was dropped or taken for granted, a line each.
    """

    path: Path
    collection: vertex.Collection
    body: dict[str, Any]
    notes: tuple[str, ...]


def read(document: Document, path: Path) -> VertexFile:
    """Read a file in camelCase or snake_case.

    Parameters
    ----------
    document
        The file's content.
    path
        The file, for what is told of its problems.

    Raises
    ------
    JobFileError
        With every problem of the file, each with line, column and path.
    """
    from distlaunch.job.vertex import messages

    kind = _kind(document, path)
    parsed = messages.parse(kind, document.data, as_text=True)
    is_tuned = kind == "HyperparameterTuningJob"
    where: vertex.Collection = "hyperparameterTuningJobs" if is_tuned else "customJobs"
    prefix = (vertex.SPECS[where],) if kind == "CustomJobSpec" else ()
    body = {prefix[0]: parsed.json} if prefix else parsed.json
    problems = [*document.problems, *_problems(document, parsed)] or [
        _problem(document, parsed, rule_path[len(prefix) :], what)
        for rule_path, what in broken_rules(body, vertex.SPECS[where])
    ]
    if problems:
        raise refusal(path, problems)
    told = TOLD_BY_GOOGLE & body.keys()
    kept = {key: value for key, value in body.items() if key not in told}
    notes = (*_dropped(path, told), *_assumed(path, where, kept), *_one_argument(path, parsed))
    return VertexFile(path, where, kept, notes)


def to_job(file: VertexFile, base: Job) -> Job:
    """Return the job that a file says, over what the project's own file says.

    Parameters
    ----------
    file
        The file.
    base
        The project's own job; its cluster is not looked at.
    """
    where = file.collection if file.collection != "customJobs" else vertex.collection(base)
    body = vertex.as_body_of(where, file.body)
    spec = body.get(vertex.SPECS[where], {})
    pools, scheduling = spec["workerPoolSpecs"], spec.get("scheduling", {})
    return replace(
        base,
        name=reading.name(body) or base.name,
        cluster=_cluster(pools),
        scheduling=_scheduling(scheduling, base.scheduling),
        labels={**base.labels, **body.get("labels", {})},
        service_account=spec.get("serviceAccount") or base.service_account,
        network=spec.get("network") or base.network,
        tensorboard=spec.get("tensorboard") or base.tensorboard,
        reduction_server=(
            reading.reduction_server(pools)
            if any(pools[reduction_server.POOL :][:1])
            else base.reduction_server
        ),
        tuning=read_tuning(body) if "studySpec" in body else base.tuning,
        vertex=_over(_without_pools(vertex.as_body_of(where, base.vertex), where), body),
    )


def _kind(document: Document, path: Path) -> Kind:
    for key, kind in _TOPS.items():
        if key in document.data:
            return kind
    if "cluster" in document.data:
        raise refusal(
            path,
            [_top(document, "cluster", "is distlaunch's own format; --config takes Google's")],
        )
    first = next(iter(document.data), None)
    if first is None:
        raise refusal(path, [YamlProblem(document.place(()), f"empty; expected {_SHAPES}")])
    hints = (did_you_mean(key, [*_TOPS, "trainingInput"]) for key in document.data)
    hint = next(filter(None, hints), "")
    raise refusal(path, [_top(document, first, f"expected {_SHAPES}{hint}")])


def _top(document: Document, key: str, what: str) -> YamlProblem:
    return YamlProblem(document.place((key,), of_key=True), f"{key}: {what}")


def _problems(document: Document, parsed: Parsed) -> list[YamlProblem]:
    return [
        YamlProblem(document.place(each.path, of_key=each.of_key), str(each))
        for each in parsed.problems
    ]


def _problem(document: Document, parsed: Parsed, path: Any, what: str) -> YamlProblem:
    origin = parsed.origins.get(path, path)
    name = f"{dotted(origin)}: " if origin else ""
    return YamlProblem(document.place(origin), f"{name}{what}")


def _dropped(path: Path, told: frozenset[str]) -> list[str]:
    return [f"{shown(path)}: {key}: dropped, as Google fills it in" for key in sorted(told)]


def _assumed(path: Path, where: vertex.Collection, body: Mapping[str, Any]) -> list[str]:
    pools = body.get(vertex.SPECS[where], {}).get("workerPoolSpecs", [])
    return [
        f"{shown(path)}: workerPoolSpecs[{index}].replicaCount: not there, taken for 1"
        for index, pool in enumerate(pools)
        if pool and "replicaCount" not in pool
    ]


def _one_argument(path: Path, parsed: Parsed) -> Iterator[str]:
    """Warn of text that looks like several arguments in place of a list: ``args: --epochs 5``."""
    for there, origin in parsed.origins.items():
        if there[-2:] in (("args", 0), ("command", 0)) and origin[-1] == there[-2]:
            text: Any = parsed.json
            for step in there:
                text = text[step]
            if " " in text:
                what = f"one argument, {describe(text)}; write a list for several"
                yield f"{shown(path)}: {dotted(origin)}: {what}"


def _cluster(specs: list[dict[str, Any]]) -> Cluster:
    chief, workers, third, evaluators = [*specs, {}, {}, {}][:4]
    pools = [chief, workers, {} if reading.is_reduction_server(third) else third, evaluators]
    first, *others = map(reading.pool, pools)
    if first is None:
        raise ValueError("a job without a chief")  # `broken_rules` has seen to it
    return Cluster(first, *others)


def _scheduling(there: Mapping[str, Any], base: Scheduling) -> Scheduling:
    timeout = reading.seconds(there, "timeout")
    max_wait = reading.seconds(there, "maxWaitDuration")
    return Scheduling(
        strategy=reading.strategy(there) if "strategy" in there else base.strategy,
        timeout=base.timeout if timeout is None else timeout,
        max_wait=base.max_wait if max_wait is None else max_wait,
    )


def _without_pools(body: dict[str, Any], where: vertex.Collection) -> dict[str, Any]:
    """Return a job's own fields but for its pools, which the other file says."""
    spec = body.get(vertex.SPECS[where])
    if spec is None:
        return body
    kept = {key: value for key, value in spec.items() if key != "workerPoolSpecs"}
    return {**body, vertex.SPECS[where]: kept}


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return one section laid over another."""
    both = {
        key: _over(below[key], above[key])
        for key in below.keys() & above.keys()
        if isinstance(below[key], dict) and isinstance(above[key], dict)
    }
    return {**below, **above, **both}
