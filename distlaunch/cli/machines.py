"""`distlaunch machines`: machines that stay up between jobs, Vertex AI's persistent resources."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distlaunch.cli import options
from distlaunch.cli.settings import confirm, draw, show, show_json
from distlaunch.errors import EXIT_INTERRUPTED, DistlaunchError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from distlaunch.cli.settings import Settings
    from distlaunch.engines.api import Engine
    from distlaunch.engines.vertex.persistent_resources import PersistentResources
    from distlaunch.job.vertex.view import JobRequest
    from distlaunch.submit.lookup import JobLocator
    from distlaunch.ui.console import Console

_INTERVALS = (10.0, 0.2)  # seconds between calls to Google, and to the emulator
_HOUR = 3600.0
_DAY = 24 * _HOUR


@click.group("machines")
def command() -> None:
    """Keep machines up between jobs, so that a series of runs starts in seconds.

    They are billed while they are up, also without jobs. A job with 'persistent_resource: ID' runs
    on them.

    \b
      distlaunch machines up warm
      distlaunch submit --set persistent_resource=warm
      distlaunch machines down warm
    """  # noqa: D301 - click wants the character that this is an escape for


@command.command("up", short_help="Start the machines that the job needs.")
@click.argument("name", metavar="[ID]", required=False)
@options.project
@options.region
@options.endpoint
@options.overrides
@click.option("--dry-run", is_flag=True, help="Print the plan and the request; send nothing.")
@click.option("--yes", "-y", "is_confirmed", is_flag=True, help="Do not prompt.")
@click.pass_obj
def up(
    settings: Settings, /, *, name: str | None, dry_run: bool, is_confirmed: bool, **given: Any
) -> int:
    """Start the machines that the job of distlaunch.yaml needs, and wait until they are up.

    ID is that of the persistent resource (default: the job's persistent_resource, or its name). The
    plan has the price of an hour. Ctrl-C does not stop the machines from coming up.
    """
    from distlaunch.checks.required_fields import no_project, no_region
    from distlaunch.job.model import PERSISTENT_RESOURCE_ID
    from distlaunch.job.persistent_resource import build_body
    from distlaunch.job.vertex.view import job_request
    from distlaunch.submit.lookup import engine_of

    launch, _ = options.load_launch(options.LaunchOptions(**given))
    job, request, console = launch.job, job_request(launch), settings.console()
    if job.is_on_slurm:
        raise UsageError("engine: slurm: persistent resources are Vertex AI's")
    if not job.project or not job.region:
        raise DistlaunchError((no_region() if job.project else no_project()).line)
    if request.reservations:
        raise UsageError("a persistent resource cannot use a reservation; add --set reservation=")
    name = name or job.persistent_resource or job.name.replace("_", "-").rstrip("-")
    if not re.fullmatch(PERSISTENT_RESOURCE_ID, name, re.ASCII):
        raise UsageError(f"{name!r} is not an id: at most 63 of a-z, 0-9 and -, a letter first")
    content = launch.request("machines", image=None)
    body = build_body(name, content, content[request.spec])
    facts = _facts({**body, "name": name}, job.project, job.region)
    console.log(
        f"persistent resource {name} in {job.region}, project {job.project}\n"
        f"machines   {facts['machines']}\n"
        f"price      {_running_price(facts)}, until you take it down; without boot disks"
    )
    if dry_run:
        console.log(f"dry run: nothing was sent; this would create persistent resource {name}:")
        show_json(body)
        return 0
    return _start(
        console, engine_of(launch, console.log), request, name, body, is_confirmed=is_confirmed
    )


def _start(
    console: Console,
    engine: Engine,
    request: JobRequest,
    name: str,
    body: Mapping[str, Any],
    *,
    is_confirmed: bool,
) -> int:
    """Start machines unless they exist, wait until they are up, and return the exit code."""
    from distlaunch.job.persistent_resource import shortages

    engine, resources = _connect(engine)
    if existing := resources.get(name):
        short = shortages(existing, request.pools, request.trials_at_once)
        if any(each.needed > each.most for each in short):
            remedy = f"pass another ID, or run 'distlaunch machines down {name}' first"
            raise DistlaunchError(f"{name} exists, with other machines", remedy=remedy)
        console.log(f"{name} exists, and has the machines of the job")
    elif not is_confirmed:
        confirm(f"start these machines as {name}?", "start them")
    try:
        operation = {} if existing else resources.create(name, body)
        _wait(console, f"{name} is coming up", engine, lambda: resources.is_up(name, operation))
    except KeyboardInterrupt:
        console.log(
            f"{name} keeps coming up, and is billed from then on: 'distlaunch machines list' shows "
            f"it, 'distlaunch machines down {name}' removes it"
        )
        return EXIT_INTERRUPTED
    console.log(f"{name} is up, and billed until 'distlaunch machines down {name}'; to use it:")
    show(f"persistent_resource: {name}")
    return 0


@command.command("list", short_help="List them, with what they cost.")
@options.with_locator
@options.as_json
def list_machines(settings: Settings, locator: JobLocator, *, as_json: bool) -> None:
    """List the persistent resources of a project and region, with what they cost.

    SO FAR is from when they came up to now, for the machines that are up now.
    """
    from distlaunch.text import Table
    from distlaunch.timestamps import ago
    from distlaunch.ui.states import coloured_state

    engine, resources = _connect(locator.engine())
    found = [_facts(each, engine.project, engine.region) for each in resources.all()]
    if as_json:
        show_json(found)
    elif found:
        heads = ("ID", "STATE", "STARTED", "MACHINES", "IN USE", "AN HOUR", "SO FAR")
        rows = [
            (
                *(each["id"], coloured_state(each["state"] or ""), ago(each["started"])),
                each["machines"],
                f"{each['in_use']} of {each['count']}",
                *(_price(each, _HOUR), _price(each, each["seconds"])),
            )
            for each in found
        ]
        draw(Table([heads, *rows], flush_left=True, folded=(3,)))
    else:
        settings.console().log(f"no persistent resources in {engine.location}")


@command.command("down", short_help="Remove them.")
@click.argument("name", metavar="ID")
@options.with_locator
@click.option("--force", is_flag=True, help="Even if jobs run there; they are cancelled.")
def down(settings: Settings, locator: JobLocator, *, name: str, force: bool) -> None:
    """Remove a persistent resource and its machines, unless jobs run on it or wait for it."""
    engine, resources = _connect(locator.engine())
    if resources.get(name) is None:
        remedy = "'distlaunch machines list' prints those there"
        raise DistlaunchError(f"no persistent resource {name} in {engine.location}", remedy=remedy)
    jobs = [f"{job['displayName']} ({job['name']})" for job in resources.active_jobs(name)]
    if jobs and not force:
        raise DistlaunchError(f"{name} has jobs, which --force cancels: {', '.join(jobs)}")
    operation = resources.delete(name)
    console = settings.console()
    _wait(console, f"{name} is going down", engine, lambda: resources.is_done(operation))
    show(f"{name} is down")


def _connect(engine: Engine) -> tuple[Engine, PersistentResources]:
    from distlaunch.engines.vertex.engine import VertexEngine
    from distlaunch.engines.vertex.persistent_resources import PersistentResources

    if not isinstance(engine, VertexEngine):
        raise UsageError("persistent resources are Vertex AI's; add --engine vertex")
    return engine, PersistentResources(engine)


def _wait(console: Console, what: str, engine: Engine, is_done: Callable[[], bool]) -> None:
    from distlaunch.engines.vertex.client import is_loopback
    from distlaunch.text import duration

    if is_done():
        return
    console.log(what)
    start = time.monotonic()
    while not is_done():
        console.progress(f"{what} for {duration(time.monotonic() - start)}")
        time.sleep(_INTERVALS[is_loopback(engine.endpoint)])
    console.progress("")


def _facts(resource: Mapping[str, Any], project: str, region: str) -> dict[str, Any]:
    """Return what is known of a persistent resource, as ``machines list --json`` has it."""
    from distlaunch import timestamps
    from distlaunch.job import machine_catalogue
    from distlaunch.job.vertex.view import JobRequest, pools_of
    from distlaunch.price import estimate_cost, load_prices

    name, specs = resource["name"].rpartition("/")[2], resource.get("resourcePools") or []
    request = JobRequest(name, project, region, tuple(pools_of(specs)))
    prices = load_prices(request, Path.cwd())
    cost = estimate_cost(request, machine_catalogue.of_project(Path.cwd()), prices)
    started, now = resource.get("startTime"), timestamps.format(time.time())
    return {
        "id": name,
        "state": resource.get("state"),
        "error": (resource.get("error") or {}).get("message"),
        "machines": ", ".join(pool.describe() for pool in request.pools),
        "count": sum(pool.replicas for pool in request.pools),
        "in_use": sum(int(spec.get("usedReplicaCount", 0)) for spec in specs),
        "started": started,
        "seconds": timestamps.seconds_between(started, now) or 0.0,
        "an_hour": None if cost.an_hour is None else round(float(cost.an_hour), 6),
        "unknown": list(cost.unknown),  # the names that have no price
        "currency": cost.currency,
        "is_estimate": cost.is_estimate,
    }


def _running_price(facts: Mapping[str, Any]) -> str:
    if facts["an_hour"] is None:
        return _price(facts, _HOUR)
    return f"{_price(facts, _HOUR)} an hour, {_price(facts, _DAY)} a day"


def _price(facts: Mapping[str, Any], seconds: float) -> str:
    if facts["an_hour"] is None:
        return f"unknown for {', '.join(facts['unknown'])}"
    about = "about " if facts["is_estimate"] else ""
    return f"{about}{facts['an_hour'] * seconds / _HOUR:,.2f} {facts['currency']}"
