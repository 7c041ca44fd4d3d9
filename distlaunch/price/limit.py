"""The prices of the machines and regions that a launch may try, and a timeout that fits one."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

from distlaunch.errors import UsageError
from distlaunch.job.machine_catalogue import of_project
from distlaunch.job.vertex.view import job_request
from distlaunch.price.book import load_prices
from distlaunch.price.costs import estimate_cost
from distlaunch.text import duration

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from distlaunch.job.launch import LaunchRequest
    from distlaunch.job.vertex.view import JobRequest
    from distlaunch.price.costs import Cost

_SHORTEST = 60  # seconds of a timeout that is worth a job


class PricedChoice(NamedTuple):
    """Machines in a region, with their price."""

    request: JobRequest
    cost: Cost


def price_choices(launch: LaunchRequest, prices: Path | None = None) -> tuple[PricedChoice, ...]:
    """Return the machines and regions that a launch may try, in their order.

    `prices` is the user's price file; None for that in the project's folder, if any.
    """
    catalogue, priced = of_project(launch.folder, launch.catalogue), []
    for request in map(job_request, launch.choices):
        book = load_prices(request, launch.folder, prices)
        priced.append(PricedChoice(request, estimate_cost(request, catalogue, book)))
    return tuple(priced)


def affordable_timeout(cost: Cost, max_cost: float) -> int | None:
    """Return the seconds of a timeout with which a job costs no more, None if there are none.

    They are whole minutes.
    """
    if not cost.up_to_timeout:
        return None
    seconds = int(Decimal(str(max_cost)) / cost.up_to_timeout * cost.timeout)
    return seconds - seconds % _SHORTEST if seconds >= _SHORTEST else None


def fitting_timeout(choices: Sequence[PricedChoice], max_cost: float) -> int | None:
    """Return the seconds of a timeout with which no choice costs more than allowed.

    None is returned if a price is unknown or no timeout is short enough: the check reports that.
    """
    fitting = [affordable_timeout(choice.cost, max_cost) for choice in choices]
    known = [seconds for seconds in fitting if seconds is not None]
    return min(known) if len(known) == len(fitting) else None


def fit_timeout(launch: LaunchRequest, prices: Path | None) -> tuple[LaunchRequest, str]:
    """Return a launch with a timeout that its limit pays for, and a note if it was changed."""
    scheduling = launch.job.scheduling
    if scheduling.max_cost is None:
        raise UsageError("--fit-timeout needs a limit: add --max-cost or scheduling.max_cost")
    if launch.job.is_on_slurm:
        return launch, ""  # the check refuses the limit
    choices = price_choices(launch, prices)
    before, after = choices[0].request.timeout, fitting_timeout(choices, scheduling.max_cost)
    if after is None or after >= before:
        return launch, ""
    limit = f"{scheduling.max_cost:g} {choices[0].cost.currency}"
    note = f"timeout shortened from {duration(before)} to {duration(after)}, for at most {limit}"
    shorter = replace(scheduling, timeout=after)
    return replace(launch, job=replace(launch.job, scheduling=shorter)), note
