"""Whether a job keeps the limit on its price: ``--max-cost`` and ``scheduling.max_cost``.

The price of a job is that of its machines up to the timeout, of a tuned job of all trials.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, cast

from distlaunch.checks.problem import error
from distlaunch.errors import DistlaunchError
from distlaunch.job.machine_catalogue import of_project
from distlaunch.job.vertex.view import view_request
from distlaunch.price.book import load_prices
from distlaunch.price.costs import estimate_cost, format_money
from distlaunch.price.limit import affordable_timeout
from distlaunch.text import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from distlaunch.checks.problem import Problem
    from distlaunch.engines.api import JobStatus, Request
    from distlaunch.job.launch import LaunchRequest
    from distlaunch.job.vertex import Collection
    from distlaunch.price import Cost, PricedChoice

KEY = "scheduling.max_cost"

_NO_PRICE = error(
    "max-cost-unknown",
    KEY,
    "jobs on Slurm have no price, so a limit on it cannot be kept",
    "remove it, and set slurm.time",
)


def problems(launch: LaunchRequest, choices: Sequence[PricedChoice]) -> Iterator[Problem]:
    """Yield the machines and regions that may cost more than the limit, or an unknown sum."""
    max_cost = launch.job.scheduling.max_cost
    if max_cost is None:
        return
    if launch.job.is_on_slurm:
        yield _NO_PRICE
        return
    unknown = [choice for choice in choices if choice.cost.up_to_timeout is None]
    dearest = max(choices, key=lambda choice: choice.cost.up_to_timeout or 0)
    for choice in unknown or (dearest,):
        name = f" of {choice.request.machines} in {choice.request.region}"
        problem = price_problem(choice.cost, max_cost, name if len(choices) > 1 else "")
        if problem:
            yield problem


def check_request(request: Request, job: JobStatus, folder: Path, max_cost: float) -> None:
    """Raise DistlaunchError if a job that is submitted again may cost more than a limit."""
    if not request.collection:
        raise DistlaunchError(_NO_PRICE.line)
    collection = cast("Collection", request.collection)
    view = view_request(request.body, collection, job.request.project, job.request.region)
    cost = estimate_cost(view, of_project(folder), load_prices(view, folder))
    if problem := price_problem(cost, max_cost):
        raise DistlaunchError(replace(problem, where="--max-cost").line)


def price_problem(cost: Cost, max_cost: float, name: str = "") -> Problem | None:
    """Return why a job with a price, of machines by `name`, may exceed a limit."""
    if cost.up_to_timeout is None:
        what = f"the price{name} is unknown ({', '.join(cost.unknown)}: {cost.why})"
        remedy = "add it to distlaunch.prices.yaml as the plan shows, or remove the limit"
        return error("max-cost-unknown", KEY, what, remedy)
    limit = Decimal(str(max_cost))
    if cost.up_to_timeout <= limit:
        return None
    in_all, allowed = (format_money(each, cost.currency) for each in (cost.up_to_timeout, limit))
    if in_all == allowed:
        in_all = f"{cost.up_to_timeout:,.6f} {cost.currency}"
    trials = f"{cost.trials} trials of up to " if cost.trials > 1 else "its timeout of "
    what = f"the price{name} for {trials}{duration(cost.timeout)} is {in_all}, above {allowed}"
    seconds = affordable_timeout(cost, max_cost)
    shorten = f"add --fit-timeout for {duration(seconds)}, " if seconds else ""
    remedy = f"{shorten}choose cheaper machines (check --compare-machines), or raise the limit"
    return error("max-cost-exceeded", KEY, what, remedy)
