"""`distlaunch setup` and `teardown`: what jobs need in a project of Google Cloud."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distlaunch.cli import options
from distlaunch.cli.settings import confirm, draw, show_json
from distlaunch.errors import DistlaunchError, GoogleError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from distlaunch.cli.settings import Settings
    from distlaunch.engines.vertex.client import Session
    from distlaunch.job.model import Job

    Step = tuple[str, Callable[[], None]]
    """What is reported when a step is done, and the function that does it."""

_REMOVED = "remove"
_FOLDERS = 10  # of a bucket that are printed


@dataclass(frozen=True)
class SetupPlan:
    """What a command is about to do."""

    rows: Sequence[Mapping[str, Any]]  # of a table, and of the JSON
    notes: Sequence[str]
    steps: Sequence[Step]
    end: str
    more: Mapping[str, Any]  # of the JSON
    refusal: DistlaunchError | None = None


def _with_plan(make_plan: Callable[..., SetupPlan]) -> Callable[..., None]:
    """Return a command with options, which prints a plan, has it confirmed and carries it out."""

    @click.pass_obj
    @wraps(make_plan)
    def command(
        settings: Settings,
        /,
        *,
        project: str | None,
        region: str | None,
        overrides: tuple[str, ...],
        is_confirmed: bool,
        dry_run: bool,
        as_json: bool,
        **values: Any,
    ) -> None:
        from distlaunch.cloud_setup.names import complete_job
        from distlaunch.engines.vertex.client import connect
        from distlaunch.job.load import load_job
        from distlaunch.text import Table

        log = settings.console().log
        job, derived = complete_job(load_job(Path.cwd(), overrides=overrides).job, project, region)
        session = connect(project=job.project, show_message=log)
        plan = make_plan(session, job, derived, **values)
        is_plan_only = dry_run or (as_json and not is_confirmed)
        if not as_json:
            cells = [[*map(_cell, row.values())] for row in plan.rows]
            draw(*([Table(cells, flush_left=True, folded=(1, 3))] if cells else []), *plan.notes)
        if plan.steps and not is_plan_only:
            if plan.refusal:
                raise plan.refusal
            if not is_confirmed:
                confirm("continue?", "confirm")
            _carry_out(plan.steps, log)
        if as_json:
            place = {"project": job.project, "region": job.region}
            show_json({**place, "resources": plan.rows, **plan.more, "dry_run": is_plan_only})
        elif not is_plan_only:
            log(plan.end)

    yes = click.option("--yes", "-y", "is_confirmed", is_flag=True, help="Do not prompt.")
    dry = click.option("--dry-run", is_flag=True, help="Print the plan, and change nothing.")
    for option in (options.as_json, dry, yes, options.overrides, options.region, options.project):
        command = option(command)
    return command


@click.command("setup")
@_with_plan
def setup(session: Session, job: Job, derived: Mapping[tuple[str, ...], str]) -> SetupPlan:
    """Create what jobs need in Google Cloud: APIs, bucket, repository, service account, roles.

    The names are those of distlaunch.yaml; placeholders and missing ones are derived from the
    project's id and written there. The plan, with what will be billed, is confirmed first. What
    exists is not changed, so the command can be repeated, e.g. after an error.
    """
    from distlaunch.cloud_setup.cloud_resources import create_resource, find_resources
    from distlaunch.job.load import FILE_NAME
    from distlaunch.job.yaml_edit import write_values

    rows: list[dict[str, Any]] = []
    steps: list[Step] = []
    notes: list[str] = []
    if derived:
        steps.append((f"wrote {FILE_NAME}", partial(write_values, Path(FILE_NAME), derived)))
    for each, existing in find_resources(session, job):
        kind, name, state = each.kind, each.name, "exists" if existing else "create"
        rows.append({"kind": kind, "name": name, "state": state, "cost": each.cost})
        if existing is None:
            steps.append((f"set up {kind} {name}", partial(create_resource, session, each)))
            notes += [each.note] if each.note else []
        elif not existing.is_in_project and (kind,) in derived:
            remedy = f"set another bucket: in {FILE_NAME}"
            what = f"in another project than {job.project}"
            raise DistlaunchError(what, where=name, remedy=remedy)
    settings = {".".join(path): value for path, value in derived.items()}
    notes += [f"{FILE_NAME}: set {key}: {value}" for key, value in settings.items()]
    if not any(row["kind"] == "role" for row in rows):
        notes.append(
            f"setup did not create {job.service_account}, and leaves its roles as they are"
        )
    end = "everything exists; next: distlaunch check"
    return SetupPlan(rows, notes, steps, end, {"settings": settings})


@click.command("teardown")
@click.option("--delete-data", is_flag=True, help="Also remove a bucket that holds files.")
@_with_plan
def teardown(session: Session, job: Job, _: object, *, delete_data: bool) -> SetupPlan:
    """List what jobs use in Google Cloud, and remove what 'distlaunch setup' created.

    Nothing else is removed, and no bucket with files without --delete-data. APIs stay enabled. It
    is refused while jobs that use these resources are active in the job's regions.
    """
    from distlaunch.cloud_setup.cloud_resources import Bucket, find_resources, remove_resource
    from distlaunch.text import join_names

    rows: list[dict[str, Any]] = []
    steps: list[Step] = []
    notes: list[str] = []
    for each, existing in find_resources(session, job, all_roles=True):
        if existing is None or (each.kind == "role" and not existing.is_made):
            continue
        fate = _REMOVED if existing.is_made else "kept: not created by setup"
        if each.kind == "APIs":
            fate = "kept: APIs stay enabled"
        elif fate == _REMOVED and existing.folders and not delete_data:
            fate = "kept: holds files (--delete-data removes them)"
        size, kind, name = existing.size, each.kind, each.name
        rows.append({"kind": kind, "name": name, "bytes": size, "state": fate})
        if existing.folders:
            notes.append(f"{name} has {join_names(existing.folders[:_FOLDERS])}")
        if fate == _REMOVED:
            steps.insert(0, (f"removed {kind} {name}", partial(remove_resource, session, each)))
        if fate == _REMOVED and isinstance(each, Bucket) and existing.folders:
            steps.insert(0, (f"deleted the files of {name}", partial(each.delete_files, session)))
    jobs, machines = _in_use(session, job, [row["name"] for row in rows])
    notes += [
        f"machines {each}: billed until 'distlaunch machines down {each}'" for each in machines
    ]
    remedy = "wait for their end, or 'distlaunch cancel' them"
    refusal = DistlaunchError(f"active jobs: {join_names(jobs)}", remedy=remedy) if jobs else None
    more = {"machines": machines, "active_jobs": jobs}
    end = "removed what setup created" if steps else "there is nothing to remove"
    return SetupPlan(rows, notes, steps, end, more, refusal)


def _cell(value: str | int | None) -> str:
    """Return a value of a row; numbers are bytes."""
    from distlaunch.runs.display import size

    return size(value) if isinstance(value, int) else value or ""


def _carry_out(steps: Sequence[Step], log: Callable[[str], None]) -> None:
    """Run steps; an error has how many are done."""
    for number, (done, step) in enumerate(steps):
        try:
            step()
        except DistlaunchError as error:
            again = f"{number} of {len(steps)} steps are done, and the same command continues"
            remedy = "; ".join(filter(None, (error.remedy, again)))
            raise DistlaunchError(error.what, where=error.where, remedy=remedy) from error
        log(done)


def _in_use(session: Session, job: Job, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return active jobs of distlaunch or with these resources, and the regions' warm machines."""
    from distlaunch.engines.vertex.jobs import ACTIVE, COLLECTIONS, Jobs
    from distlaunch.job.launch import LAUNCH_LABEL
    from distlaunch.refusals import DISABLED

    active: list[Mapping[str, Any]] = []
    machines: list[str] = []
    for region in dict.fromkeys([str(job.region), *job.scheduling.regions]):
        jobs = Jobs(session, str(job.project), region)
        try:
            active += [each for collection in COLLECTIONS for each in jobs.list(collection, ACTIVE)]
            machines += [
                each["name"].rpartition("/")[2] for each in jobs.list("persistentResources")
            ]
        except GoogleError as error:
            if error.error_reason != DISABLED:
                raise
    parts = [f"{name}/" if "/" in name else name for name in names]  # of URIs, or an account
    labels = [(each, (each.get("labels") or {}).get(LAUNCH_LABEL)) for each in active]
    users = [
        label or each["name"].rpartition("/")[2]
        for each, label in labels
        if label or any(part in json.dumps(each) for part in parts)
    ]
    return users, machines
