"""``vertex:`` of distlaunch.yaml: fields of Google's job, validated against its message."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distlaunch.job import vertex
from distlaunch.job.validation import describe_value, dotted_path
from distlaunch.job.vertex import fields
from distlaunch.job.vertex.to_job import job_fields
from distlaunch.job.yaml_document import YamlProblem

if TYPE_CHECKING:
    from distlaunch.job.model import Job
    from distlaunch.job.vertex.proto import ParsedMessage
    from distlaunch.job.yaml_document import Path, SourceMap

_KEY = "vertex"
_JOB_KEYS = {
    "displayName": "name",
    "labels": "labels",
    "machineSpec": "cluster",
    "replicaCount": "cluster",
    "args": "args",
    "env": "env",
    "imageUri": "image",
    "pythonPackageSpec": "image",
    "scheduling": "scheduling",
    "baseOutputDirectory": "bucket",
    "studySpec": "tuning",
    "maxTrialCount": "tuning",
    "parallelTrialCount": "tuning",
    **{json_name: name for name, json_name in fields.PLAIN_FIELDS.items()},
}  # the key of distlaunch.yaml that sets a field of Google's job, too


def merge_passthrough(
    job: Job | None, document: SourceMap, full_job: Job | None
) -> tuple[Job | None, list[YamlProblem]]:
    """Return a job with its ``vertex`` section merged into it, and the section's problems.

    `full_job` is the job that the section belongs to, if the document is only a part of it.
    """
    from distlaunch.job.vertex import proto

    data = document.data[_KEY]
    is_tuned = document.data.get("tuning") or (full_job and vertex.is_tuned(full_job))
    is_tuned = is_tuned or not fields.TUNED.isdisjoint(map(fields.json_name, data))
    collection = "hyperparameterTuningJobs" if is_tuned else "customJobs"
    parsed = proto.parse(proto.MESSAGES[collection], data, as_text=True)
    problems = [
        _problem(document, each.path, each.message, of_key=each.of_key) for each in parsed.problems
    ]
    if job is None or problems:
        return job, problems
    if full_job is not None:
        conflicts = _conflicts(replace(full_job, vertex=parsed.json), document, parsed)
        of_options = [each for each in conflicts if each.location.option]
        return replace(job, vertex=parsed.json), of_options
    in_section = job_fields(parsed.json, job)
    unset = {key: value for key, value in in_section.items() if not document.data.get(key)}
    job = replace(job, vertex=parsed.json, **unset)
    return job, _conflicts(job, document, parsed)


def _conflicts(job: Job, document: SourceMap, parsed: ParsedMessage) -> list[YamlProblem]:
    """Return the fields of the section that another key of the file sets to another value."""
    # The image and the args belong to the job, also when they are not known yet.
    known = replace(job, args=job.args or ("ARGS",))
    folder = job.bucket and f"{job.bucket}/{job.name}/JOB_ID"
    body = vertex.plain_request(known, image="IMAGE", labels={}, job_dir=folder)
    problems = []
    for path, value in fields.leaves(parsed.json):
        key = next((_JOB_KEYS[step] for step in reversed(path) if step in _JOB_KEYS), None)
        if key and _value_at(body, path) != value:
            message = f"{describe_value(value)} conflicts with {key}; set it there"
            problems.append(_problem(document, parsed.origins[path], message))
    return problems


def _value_at(body: Any, path: Path) -> Any:
    try:
        for step in path:
            body = body[step]
    except (LookupError, TypeError):
        return None
    return body


def _problem(document: SourceMap, path: Path, message: str, *, of_key: bool = False) -> YamlProblem:
    full_path = (_KEY, *path)
    location = document.location(full_path, of_key=of_key)
    return YamlProblem(location, f"{dotted_path(full_path)}: {message}")
