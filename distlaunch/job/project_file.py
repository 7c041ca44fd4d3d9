"""distlaunch.yaml → Job, or all of its problems at once with line and column."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Any, cast

from distlaunch.errors import DistlaunchError
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
from distlaunch.job.problems import refusal, shown, validate
from distlaunch.job.yaml_marks import Document, Place, YamlProblem

if TYPE_CHECKING:
    from pathlib import Path

FILE_NAME = "distlaunch.yaml"


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
        section, problems = validate(document, sections.JobSection)
        if section and not problems:
            return _job(section, document.typed("vertex") or {})
    except YamlProblem as problem:
        problems = [problem]
    raise refusal(path, problems)


def _read(path: Path) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise DistlaunchError(f"{shown(path)}: not a file; expected text in YAML")
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        if path.is_symlink():
            raise DistlaunchError(
                f"{shown(path)}: a link that leads nowhere; mend or remove it"
            ) from None
        raise DistlaunchError(f"{shown(path)}: no such file; 'distlaunch init' makes one") from None
    except UnicodeDecodeError as problem:
        before = problem.object[: problem.start]
        column = len(before) - (before.rfind(b"\n") + 1) + 1
        place = Place(before.count(b"\n") + 1, column)
        raise refusal(path, [YamlProblem(place, "not UTF-8 text")]) from None
    except OSError as problem:
        raise DistlaunchError(f"{shown(path)}: {problem.strerror or problem}") from None


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
