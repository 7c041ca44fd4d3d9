"""Shell completion of jobs, runs, tasks, fields and starters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import click


def job_names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the launch ids and names of the jobs submitted from this directory."""
    from distlaunch.submit.records import Records

    records = Records(Path.cwd()).all()
    names = [record.launch_id for record in records] + [record.name for record in records]
    return _matching(names, incomplete)


def run_ids(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids of the local runs, the newest first."""
    from distlaunch.paths import LOCAL_JOBS

    return _matching(sorted((path.name for path in LOCAL_JOBS.glob("*")), reverse=True), incomplete)


def job_tasks(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the tasks of the job of the command line."""
    from distlaunch.google.logs import task_names
    from distlaunch.submit.records import Records

    record = Records(Path.cwd()).find(context.params.get("job"))
    return _matching(task_names(record.request), incomplete) if record else []


def local_tasks(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the tasks of distlaunch.yaml, each followed by ``@``."""
    from distlaunch.errors import DistlaunchError
    from distlaunch.job.load import load_job

    try:
        tasks = load_job(Path.cwd()).job.cluster.tasks()
    except DistlaunchError:
        return []
    return _matching([f"{task}@" for task in tasks], incomplete)


def host_tasks(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the tasks of the hosts of the command line."""
    from distlaunch.errors import DistlaunchError
    from distlaunch.job.tf_config import parse_hosts

    try:
        tasks = parse_hosts(context.params.get("hosts") or "")
    except DistlaunchError:
        return []
    return _matching(map(str, tasks), incomplete)


def override_fields(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the fields of distlaunch.yaml, each followed by ``=``."""
    from distlaunch.job.json_schema import schema

    definition = schema()
    return _matching(_fields(definition, definition["$defs"]), incomplete)


def starter_names(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the names of the starters."""
    from distlaunch.resources import starters

    return _matching(starters(), incomplete)


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


def _matching(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
