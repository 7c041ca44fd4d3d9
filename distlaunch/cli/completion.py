"""Shell completion of jobs, runs, tasks, fields and starters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import click


def _completion(
    names: Callable[[click.Context], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return click's callback that completes one of some names."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        return [name for name in names(context) if name.startswith(incomplete)]

    return complete


@_completion
def job_names(_context: click.Context) -> Iterable[str]:
    """Return the launch ids and names of the jobs submitted from this directory."""
    from distlaunch.submit.records import Records

    records = Records(Path.cwd()).all()
    return [record.launch_id for record in records] + [record.name for record in records]


@_completion
def run_ids(_context: click.Context) -> Iterable[str]:
    """Return the ids of the local runs, the newest first."""
    return _run_ids()


@_completion
def runs_and_jobs(_context: click.Context) -> Iterable[str]:
    """Return the ids of local runs and the launch ids of jobs."""
    from distlaunch.submit.records import Records

    return _run_ids() + [record.launch_id for record in Records(Path.cwd()).all()]


@_completion
def documented_topics(_context: click.Context) -> Iterable[str]:
    """Return the pages, check codes and commands of the documentation."""
    from distlaunch.documentation import topics

    return topics()


@_completion
def job_tasks(context: click.Context) -> Iterable[str]:
    """Return the tasks of the job of the command line."""
    from distlaunch.engines.vertex.log_query import task_names
    from distlaunch.submit.records import Records

    record = Records(Path.cwd()).find(context.params.get("job"))
    if record and record.engine == "slurm":
        from distlaunch.engines.slurm.job_status import tasks_of

        return tasks_of(record.request)
    return task_names(record.request) if record else ()


@_completion
def local_tasks(_context: click.Context) -> Iterable[str]:
    """Return the tasks of distlaunch.yaml, each followed by ``@``."""
    from distlaunch.errors import DistlaunchError
    from distlaunch.job.load import load_job

    try:
        return [f"{task}@" for task in load_job(Path.cwd()).job.cluster.tasks()]
    except DistlaunchError:
        return ()


@_completion
def host_tasks(context: click.Context) -> Iterable[str]:
    """Return the tasks of the hosts of the command line."""
    from distlaunch.errors import DistlaunchError
    from distlaunch.job.tf_config import parse_hosts

    try:
        return map(str, parse_hosts(context.params.get("hosts") or ""))
    except DistlaunchError:
        return ()


@_completion
def override_fields(_context: click.Context) -> Iterable[str]:
    """Return the fields of distlaunch.yaml, each followed by ``=``."""
    from distlaunch.job.json_schema import schema

    definition = schema()
    return _fields(definition, definition["$defs"])


@_completion
def starter_names(_context: click.Context) -> Iterable[str]:
    """Return the names of the starters."""
    from distlaunch.resources import starters

    return starters()


def _run_ids() -> list[str]:
    from distlaunch.paths import LOCAL_JOBS

    return sorted((path.name for path in LOCAL_JOBS.glob("*")), reverse=True)


def _fields(
    definition: dict[str, Any], sections: dict[str, Any], prefix: str = ""
) -> Iterator[str]:
    for name, field in definition.get("properties", {}).items():
        inner = _section_of(field, sections)
        if inner:
            yield from _fields(inner, sections, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}="


def _section_of(field: dict[str, Any], sections: dict[str, Any]) -> dict[str, Any] | None:
    """Return the section that a field refers to, None for a plain field."""
    for choice in (field, *field.get("anyOf", ()), *field.get("allOf", ())):
        if "$ref" in choice:
            section: dict[str, Any] = sections[choice["$ref"].rpartition("/")[2]]
            return section if "properties" in section else None
    return None
