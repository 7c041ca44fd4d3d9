"""distlaunch.yaml → Job, or all of its problems at once with line and column."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError

from distlaunch.errors import DistlaunchError, JobFileError, did_you_mean
from distlaunch.job import sections
from distlaunch.job.model import (
    Choice,
    Cluster,
    Image,
    Job,
    Machine,
    Pool,
    Scheduling,
    Span,
    Tuning,
)
from distlaunch.job.yaml_marks import Document, Place, YamlProblem

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

FILE_NAME = "distlaunch.yaml"
_LONGEST_VALUE = 40  # characters of a wrong value that are shown

_EXPECTED_BY_ERROR = {
    "dict_type": "names with values, one a line",
    "list_type": "a list, as [first, second]",
    "too_short": "one or more",
}


def load(path: Path) -> Job:
    """Read a job file.

    Parameters
    ----------
    path
        The file, ``distlaunch.yaml`` as a rule.

    Raises
    ------
    JobFileError
        With every problem of the file, each with line, column, value and what was expected.
    DistlaunchError
        If the file cannot be read.
    """
    text = _read(path)
    try:
        document = Document(text)
        section, problems = _validate(document)
        if section and not problems:
            return _job(section, document.typed("vertex") or {})
    except YamlProblem as problem:
        problems = [problem]
    in_order = sorted(problems, key=lambda problem: (problem.place.line, problem.place.column))
    raise JobFileError(_line(path, problem) for problem in in_order)


def _read(path: Path) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise DistlaunchError(f"{_shown(path)}: not a file; expected text in YAML")
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        if path.is_symlink():
            raise DistlaunchError(
                f"{_shown(path)}: a link that leads nowhere; mend or remove it"
            ) from None
        raise DistlaunchError(
            f"{_shown(path)}: no such file; 'distlaunch init' makes one"
        ) from None
    except UnicodeDecodeError as problem:
        before = problem.object[: problem.start]
        column = len(before) - (before.rfind(b"\n") + 1) + 1
        place = Place(before.count(b"\n") + 1, column)
        raise JobFileError([_line(path, YamlProblem(place, "not UTF-8 text"))]) from None
    except OSError as problem:
        raise DistlaunchError(f"{_shown(path)}: {problem.strerror or problem}") from None


def _validate(document: Document) -> tuple[sections.JobSection | None, list[YamlProblem]]:
    problems = list(document.problems)
    try:
        return sections.JobSection.model_validate(document.data), problems
    except ValidationError as error:
        return None, problems + [_problem(document, detail) for detail in error.errors()]


def _problem(document: Document, detail: ErrorDetails) -> YamlProblem:
    of_key = detail["loc"][-1:] == ("[key]",)
    path = detail["loc"][:-1] if of_key else detail["loc"]
    unknown = detail["type"] == "extra_forbidden"
    name = ".".join(str(step) for step in path)
    what = _what(path, detail)
    place = document.place(path, of_key=of_key or unknown or detail["type"] == "missing")
    return YamlProblem(place, f"{name}: {what}")


def _what(path: tuple[int | str, ...], detail: ErrorDetails) -> str:
    """Say what is wrong at a path, and what was expected there."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        known = _keys_at(path[:-1])
        hint = did_you_mean(str(path[-1]), known)
        return f"unknown key{hint or '; known here: ' + ', '.join(known)}"
    if kind == sections.EXPECTED:
        expected, hint = context["expected"], context["hint"]
    elif kind == "model_type":
        expected, hint = f"a section with {', '.join(_keys_at(path))}", ""
    else:
        expected, hint = _EXPECTED_BY_ERROR.get(kind, detail["msg"]), ""
    return f"expected {expected}, got {_value(detail['input'])}{hint}"


def _value(value: Any) -> str:
    if isinstance(value, str):
        shown = value if len(value) <= _LONGEST_VALUE else value[: _LONGEST_VALUE - 1] + "…"
        return repr(shown)
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return "nothing" if not value else "a section"


def _keys_at(path: tuple[int | str, ...]) -> list[str]:
    """Return the keys of the section that a path leads to."""
    section: type[BaseModel] = sections.JobSection
    steps = iter(path)
    for step in steps:
        annotation = section.model_fields[str(step)].annotation
        section = _section_in(annotation)
        if get_origin(annotation) is dict:
            next(steps)
    return list(section.model_fields)


def _section_in(annotation: Any) -> type[BaseModel]:
    """Return the section that an annotation such as ``PoolSection | None`` names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(
        _section_in(part) for part in reversed(get_args(annotation)) if part is not type(None)
    )


def _line(path: Path, problem: YamlProblem) -> str:
    return f"{_shown(path)}:{problem.place.line}:{problem.place.column}: {problem.what}"


def _shown(path: Path) -> str:
    """Return a path as it is shortest to read from here."""
    here = Path.cwd()
    full = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links
    return str(full.relative_to(here) if full.is_relative_to(here) else path)


def _job(section: sections.JobSection, vertex: dict[str, Any]) -> Job:
    return Job(
        name=section.name,
        cluster=_cluster(section.cluster),
        module=section.module,
        args=tuple(section.args),
        env=section.env,
        project=section.project,
        region=section.region,
        bucket=section.bucket and section.bucket.rstrip("/"),
        image=Image(**dict(section.image)),
        scheduling=Scheduling(**dict(section.scheduling)),
        labels=section.labels,
        service_account=section.service_account,
        network=section.network,
        tensorboard=section.tensorboard,
        tuning=_tuning(section.tuning) if section.tuning else None,
        vertex=vertex,
    )


def _cluster(section: sections.ClusterSection) -> Cluster:
    return Cluster(
        chief=Pool(_machine(section.chief)),
        workers=_pool(section.workers),
        parameter_servers=_pool(section.parameter_servers),
        evaluators=_pool(section.evaluators),
    )


def _pool(section: sections.PoolSection | None) -> Pool | None:
    return Pool(_machine(section), section.count) if section else None


def _machine(section: sections.ChiefSection) -> Machine:
    accelerator = section.accelerator
    if accelerator is None:
        return Machine(section.machine)
    return Machine(section.machine, accelerator.type, accelerator.count)


def _tuning(section: sections.TuningSection) -> Tuning:
    return Tuning(
        metric=section.metric,
        goal=section.goal,
        parameters={name: _parameter(each) for name, each in section.parameters.items()},
        trials=section.trials,
        parallel_trials=section.parallel_trials,
        algorithm=section.algorithm,
    )


def _parameter(section: sections.ParameterSection) -> Span | Choice:
    if section.values is not None:
        return Choice(tuple(section.values))
    return Span(
        minimum=cast("float", section.min),  # the section has seen to it that both are there
        maximum=cast("float", section.max),
        whole=section.type == "integer",
        scale=section.scale,
    )
