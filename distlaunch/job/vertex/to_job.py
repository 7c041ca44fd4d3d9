"""A file in Vertex AI's format → a Job: a CustomJobSpec, a CustomJob or a HyperparameterTuningJob.

The job carries the whole file, so that it can be written again without loss; likewise the fields
of Google's job under ``vertex:`` of distlaunch.yaml.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distlaunch.errors import did_you_mean
from distlaunch.files import display_path
from distlaunch.job import reduction_server, reservation, vertex
from distlaunch.job.model import Cluster, Job, Scheduling, StopIf
from distlaunch.job.validation import describe_value, dotted_path
from distlaunch.job.vertex import fields
from distlaunch.job.vertex.tuning import read_tuning
from distlaunch.job.yaml_document import YamlProblem, deep_merge, job_file_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from distlaunch.job.vertex.proto import MessageName, ParsedMessage
    from distlaunch.job.yaml_document import Document
    from distlaunch.job.yaml_document import Path as FieldPath

OUTPUT_ONLY_FIELDS = frozenset(
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
)
_MESSAGES: dict[str, MessageName] = {
    "studySpec": "HyperparameterTuningJob",
    "trialJobSpec": "HyperparameterTuningJob",
    "jobSpec": "CustomJob",
    "workerPoolSpecs": "CustomJobSpec",
}  # by a key of the first level
_BESIDE_SPEC = ("displayName", "labels", "encryptionSpec")  # fields of a CustomJob
_PASSTHROUGH = "vertex"  # the key of distlaunch.yaml
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
    reservation.AFFINITY: "reservation",
    "baseOutputDirectory": "bucket",
    "studySpec": "tuning",
    "maxTrialCount": "tuning",
    "parallelTrialCount": "tuning",
    **{json_name: name for name, json_name in fields.PLAIN_FIELDS.items()},
}  # the key of distlaunch.yaml that sets a field of Google's job, too
_CONTROL = re.compile(r"[\0-\x1f\x7f]")
_SPACE_OR_CONTROL = re.compile(r"[\0-\x20\x7f]")
# Google's limit of keys and values of labels.
_LONGEST_LABEL = 63
_EXPECTED_KEYS = "trainingInput, workerPoolSpecs, jobSpec or studySpec at the top"


def read(document: Document, path: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Parse a file in camelCase or snake_case; raise all its problems as a JobFileError.

    Returns the body of a request, and notes about what was changed.
    """
    from distlaunch.job.vertex import proto

    message = _message_name(document, path)
    parsed = proto.parse(message, document.data, as_text=True)
    spec = "trialJobSpec" if message == "HyperparameterTuningJob" else "jobSpec"
    prefix = (spec,) if message == "CustomJobSpec" else ()
    body = {spec: parsed.json} if prefix else parsed.json
    problems = [*document.problems]
    for each in parsed.problems:
        location = document.location(each.path, of_key=each.of_key)
        reason = _beside_spec(each.path, message) or each.message
        problems.append(YamlProblem(location, reason, dotted_path(each.path)))
    if not problems:
        for rule_path, reason in _broken_rules(body, spec):
            origin = parsed.origins.get(rule_path[len(prefix) :], rule_path[len(prefix) :])
            problems.append(YamlProblem(document.location(origin), reason, dotted_path(origin)))
    if problems:
        raise job_file_error(path, problems)
    ignored = OUTPUT_ONLY_FIELDS & body.keys()
    body = {key: value for key, value in body.items() if key not in ignored}
    notes = (
        *(f"{key}: ignored (output-only field)" for key in sorted(ignored)),
        *_assumed_counts(body.get(spec, {})),
        *_single_arguments(parsed),
    )
    return body, tuple(f"{display_path(path)}: {note}" for note in notes)


def _beside_spec(path: FieldPath, message: MessageName) -> str:
    """Return the reason of a problem at a field of a CustomJob beside the pools, if it is one."""
    key = str(path[0]) if len(path) == 1 else ""
    if message == "CustomJobSpec" and fields.json_name(key) in _BESIDE_SPEC:
        return "is a field beside jobSpec; put workerPoolSpecs under jobSpec:"
    return ""


def to_job(
    body: Mapping[str, Any], notes: tuple[str, ...], base: Job
) -> tuple[Job, tuple[str, ...]]:
    """Return the job of a file and notes; `base` has what the file does not set."""
    is_tuned = not fields.TUNED.isdisjoint(body)
    target = "hyperparameterTuningJobs" if is_tuned else vertex.collection(base)
    body = vertex.as_body_of(target, body)
    passthrough = vertex.as_body_of(target, base.vertex)
    passthrough.get(vertex.SPECS[target], {}).pop("workerPoolSpecs", None)
    job = replace(
        base,
        name=fields.name(body) or base.name,
        cluster=_cluster(body[vertex.SPECS[target]]["workerPoolSpecs"]),
        vertex=deep_merge(passthrough, body),
        **job_fields(body, base),
    )
    return job, notes


def job_fields(body: Mapping[str, Any], base: Job) -> dict[str, Any]:
    """Return what a request's body sets of a job, besides its name and its cluster."""
    spec = fields.job_spec(body)
    pools = spec.get("workerPoolSpecs", [])
    has_third_pool = any(pools[reduction_server.POOL :][:1])
    # The file's pools, each with a reservation of its own or none, win over one for all.
    has_own = any(reservation.AFFINITY in pool.get("machineSpec", {}) for pool in pools)
    server = fields.reduction_server(pools) if has_third_pool else base.reduction_server
    return {
        "labels": {**base.labels, **body.get("labels", {})},
        "scheduling": _scheduling(spec.get("scheduling", {}), base.scheduling),
        "reduction_server": server,
        "reservation": None if has_own else base.reservation,
        "tuning": read_tuning(body) if "studySpec" in body else base.tuning,
        "stop_if": _stop_if(pools) or base.stop_if,
        **{
            name: spec[json]
            for name, json in fields.PLAIN_FIELDS.items()
            if spec.get(json) or spec.get(json) is False
        },
    }


def _stop_if(pools: Sequence[Mapping[str, Any]]) -> StopIf | None:
    with suppress(KeyError, TypeError, ValueError):  # a variable that is not distlaunch's
        programs = filter(None, map(fields.program, pools))
        return next(filter(None, (StopIf.of_env(program.env) for program in programs)), None)
    return None


def merge_passthrough(
    job: Job | None, document: Document, full_job: Job | None
) -> tuple[Job | None, list[YamlProblem]]:
    """Return a job with its ``vertex`` section merged into it, and the section's problems.

    `full_job` is the job that the section belongs to, if the document is only a part of it.
    """
    from distlaunch.job.vertex import proto

    data = document.data[_PASSTHROUGH]
    is_tuned = document.data.get("tuning") or (full_job and vertex.is_tuned(full_job))
    is_tuned = is_tuned or not fields.TUNED.isdisjoint(map(fields.json_name, data))
    collection = "hyperparameterTuningJobs" if is_tuned else "customJobs"
    parsed = proto.parse(proto.MESSAGES[collection], data, as_text=True)
    problems = [
        _vertex_problem(document, each.path, each.message, of_key=each.of_key)
        for each in parsed.problems
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


def _conflicts(job: Job, document: Document, parsed: ParsedMessage) -> list[YamlProblem]:
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
            problems.append(_vertex_problem(document, parsed.origins[path], message))
    return problems


def _value_at(body: Any, path: FieldPath) -> Any:
    try:
        for step in path:
            body = body[step]
    except (LookupError, TypeError):
        return None
    return body


def _vertex_problem(
    document: Document, path: FieldPath, message: str, *, of_key: bool = False
) -> YamlProblem:
    full_path = (_PASSTHROUGH, *path)
    location = document.location(full_path, of_key=of_key)
    return YamlProblem(location, message, dotted_path(full_path))


def _message_name(document: Document, path: Path) -> MessageName:
    data = document.data
    names = set(map(fields.json_name, data))
    for key, message in _MESSAGES.items():
        if key in names:
            return message
    first = next(iter(data), None)
    if first is None:
        empty = YamlProblem(document.location(()), f"empty; expected {_EXPECTED_KEYS}")
        raise job_file_error(path, [empty])
    reason = f"expected {_EXPECTED_KEYS}"
    if "cluster" in data:
        first, reason = "cluster", "is distlaunch's own format; --config takes Google's"
    else:
        hints = (did_you_mean(key, [*_MESSAGES, "trainingInput"]) for key in data)
        reason += next(filter(None, hints), "")
    location = document.location((first,), of_key=True)
    raise job_file_error(path, [YamlProblem(location, reason, first)])


def _assumed_counts(spec: Mapping[str, Any]) -> Iterator[str]:
    for index, pool in enumerate(spec.get("workerPoolSpecs", [])):
        if pool and "replicaCount" not in pool:
            yield f"workerPoolSpecs[{index}].replicaCount: not set; using 1"


def _single_arguments(parsed: ParsedMessage) -> Iterator[str]:
    """Report text that looks like several arguments instead of a list: ``args: --epochs 5``."""
    for path, origin in parsed.origins.items():
        if path[-2:] in (("args", 0), ("command", 0)) and origin[-1] == path[-2]:
            text: Any = parsed.json
            for step in path:
                text = text[step]
            if " " in text:
                reason = f"one argument, {describe_value(text)}; write a list for several"
                yield f"{dotted_path(origin)}: {reason}"


def _cluster(specs: list[dict[str, Any]]) -> Cluster:
    chief, workers, third, evaluators = [*specs, {}, {}, {}][:4]
    servers = {} if fields.is_reduction_server(third) else third
    first, *others = map(fields.pool, [chief, workers, servers, evaluators])
    if first is None:
        raise ValueError("a job without a chief")  # excluded by `_broken_rules`
    return Cluster(first, *others)


def _scheduling(section: Mapping[str, Any], base: Scheduling) -> Scheduling:
    changes: dict[str, Any] = {
        name: fields.seconds(section, json_name)
        for name, json_name in fields.SCHEDULING_FIELDS.items()
        if json_name in section
    }
    if "strategy" in section:
        changes["strategy"] = fields.strategy(section)
    return replace(base, **changes)


def _broken_rules(body: Mapping[str, Any], spec: str) -> Iterator[tuple[FieldPath, str]]:
    """Yield the path and the problem of each field that breaks a rule beyond its type.

    Only rules where an error could mislead; machines, regions, limits and prices are checked in
    `distlaunch.checks`.
    """
    display_name = body.get("displayName", "")
    if _CONTROL.search(display_name):
        yield ("displayName",), f"expected text in one line, got {describe_value(display_name)}"
    for key, value in body.get("labels", {}).items():
        message = "expected at most 63 lower-case letters, digits, _ and -"
        if not key or not _is_label(key) or not key[0].isalpha():
            yield ("labels", key), f"{message}, a letter first, got {describe_value(key)}"
        if not _is_label(value):
            yield ("labels", key), f"{message}, got {describe_value(value)}"
    pools = body.get(spec, {}).get("workerPoolSpecs", [])
    path = (spec, "workerPoolSpecs")
    if not pools or not pools[0]:
        yield path, "no chief; expected a first pool with one machine"
    elif pools[0].get("replicaCount", 1) != 1:
        count = pools[0]["replicaCount"]
        yield (*path, 0, "replicaCount"), f"expected 1, as the first pool is the chief, got {count}"
    for index, pool in enumerate(pools):
        yield from _program_rules((*path, index), pool)


def _is_label(text: str) -> bool:
    """Whether this is a label at Google, which may be in any script."""
    plain = text.replace("_", "").replace("-", "")
    return len(text) <= _LONGEST_LABEL and text == text.lower() and (not plain or plain.isalnum())


def _program_rules(path: FieldPath, pool: Mapping[str, Any]) -> Iterator[tuple[FieldPath, str]]:
    for field, image_field in (
        ("containerSpec", "imageUri"),
        ("pythonPackageSpec", "executorImageUri"),
    ):
        program = pool.get(field, {})
        image = program.get(image_field, "")
        if _SPACE_OR_CONTROL.search(image):
            message = f"expected an image such as HOST/PATH:TAG, got {describe_value(image)}"
            yield (*path, field, image_field), message
        for index, variable in enumerate(program.get("env", [])):
            name = variable.get("name", "")
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII):
                message = f"expected a variable name such as LOG_LEVEL, got {describe_value(name)}"
                yield (*path, field, "env", index, "name"), message
