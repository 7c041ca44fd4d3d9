"""``vertex:`` of distlaunch.yaml: fields of Google's job, checked against the real message."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distlaunch.job import vertex
from distlaunch.job.vertex import reading
from distlaunch.job.vertex.tuning import read_tuning
from distlaunch.job.wording import describe, dotted
from distlaunch.job.yaml_document import YamlProblem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from distlaunch.job.model import Job
    from distlaunch.job.vertex.messages import Kind
    from distlaunch.job.vertex.proto import Parsed
    from distlaunch.job.yaml_document import Marked, Path

KEY = "vertex"
_KINDS: dict[vertex.Collection, Kind] = {
    "customJobs": "CustomJob",
    "hyperparameterTuningJobs": "HyperparameterTuningJob",
}
_ELSEWHERE = {  # the key of distlaunch.yaml that says what a field of Google's says
    "displayName": "name",
    "labels": "labels",
    "machineSpec": "cluster",
    "replicaCount": "cluster",
    "args": "args",
    "env": "env",
    "imageUri": "image",
    "pythonPackageSpec": "image",
    "scheduling": "scheduling",
    "serviceAccount": "service_account",
    "network": "network",
    "tensorboard": "tensorboard",
    "baseOutputDirectory": "bucket",
    "studySpec": "tuning",
    "maxTrialCount": "tuning",
    "parallelTrialCount": "tuning",
}


def take_in(
    job: Job | None, marked: Marked, whole: Job | None
) -> tuple[Job | None, list[YamlProblem]]:
    """Return a job with what its bag says taken into it, and the problems of the bag.

    Parameters
    ----------
    job
        What the rest of the file says, None if it is broken.
    marked
        The file.
    whole
        The job that the bag is to be of, where the file does not say all of it.
    """
    from distlaunch.job.vertex import messages

    data = marked.data[KEY]
    is_tuned = bool(marked.data.get("tuning")) or (whole is not None and vertex.is_tuned(whole))
    where = _where(data, is_tuned=is_tuned)
    parsed = messages.parse(_KINDS[where], data, as_text=True)
    problems = [
        _problem(marked, each.path, each.what, of_key=each.of_key) for each in parsed.problems
    ]
    if job is None or problems:
        return job, problems
    if whole is not None:
        mine = replace(whole, vertex=parsed.json)
        found = _contradictions(mine, marked, parsed)
        return replace(job, vertex=parsed.json), [each for each in found if each.place.option]
    job = _absorb(job, parsed.json, marked)
    return job, _contradictions(job, marked, parsed)


def _where(data: Mapping[str, Any], *, is_tuned: bool) -> vertex.Collection:
    tuned = reading.TUNED | {_snake(each) for each in reading.TUNED}
    is_tuned = is_tuned or not tuned.isdisjoint(data)
    return "hyperparameterTuningJobs" if is_tuned else "customJobs"


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _absorb(job: Job, body: dict[str, Any], marked: Marked) -> Job:
    """Return the job with what it leaves unsaid taken from its bag."""
    spec = body.get("trialJobSpec") or body.get("jobSpec") or {}
    scheduling = spec.get("scheduling", {})
    says_strategy = "strategy" in (marked.data.get("scheduling") or {})
    return replace(
        job,
        vertex=body,
        labels={**body.get("labels", {}), **job.labels},
        service_account=job.service_account or spec.get("serviceAccount"),
        network=job.network or spec.get("network"),
        tensorboard=job.tensorboard or spec.get("tensorboard"),
        reduction_server=job.reduction_server
        or reading.reduction_server(spec.get("workerPoolSpecs", [])),
        tuning=job.tuning or read_tuning(body),
        scheduling=replace(
            job.scheduling,
            strategy=job.scheduling.strategy if says_strategy else reading.strategy(scheduling),
            timeout=_first(job.scheduling.timeout, reading.seconds(scheduling, "timeout")),
            max_wait=_first(
                job.scheduling.max_wait, reading.seconds(scheduling, "maxWaitDuration")
            ),
        ),
    )


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _contradictions(job: Job, marked: Marked, parsed: Parsed) -> list[YamlProblem]:
    """Return the fields of the bag that the rest of the file says otherwise."""
    # The image and the args are the job's even where they are not known yet.
    certain = replace(job, args=job.args or ("ARGS",))
    folder = job.bucket and f"{job.bucket}/{job.name}/JOB_ID"
    body = vertex.plain_request(certain, image="IMAGE", labels={}, job_dir=folder)
    found = []
    for path, value in _leaves(parsed.json):
        key = next((_ELSEWHERE[step] for step in reversed(path) if step in _ELSEWHERE), None)
        if key and _at(body, path) != value:
            origin = parsed.origins[path]
            what = f"{describe(value)} here, but {key} says otherwise; write it there"
            found.append(_problem(marked, origin, what))
    return found


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield what the bag says, piece by piece; a list is one piece, but that of the pools."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list) and path[-1:] == ("workerPoolSpecs",):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index))
    elif path and value not in ({}, []):
        yield path, value


def _at(body: Any, path: Path) -> Any:
    for step in path:
        if isinstance(body, dict):
            body = body.get(step)
        elif isinstance(body, list) and isinstance(step, int) and step < len(body):
            body = body[step]
        else:
            return None
    return body


def _problem(marked: Marked, path: Path, what: str, *, of_key: bool = False) -> YamlProblem:
    full = (KEY, *path)
    return YamlProblem(marked.place(full, of_key=of_key), f"{dotted(full)}: {what}")
