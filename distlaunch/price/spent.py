"""What a job has cost so far, by the prices that are known without a call."""

from __future__ import annotations

import time
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from distlaunch import timestamps
from distlaunch.engines.vertex.jobs import has_ended, parse_name
from distlaunch.job import machine_catalogue
from distlaunch.job.vertex.view import view_request
from distlaunch.price.book import load_prices, price_file
from distlaunch.price.costs import estimate_cost, json_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from distlaunch.job.vertex import Collection

_HOUR = 3600  # seconds


def cost_so_far(job: Mapping[str, Any], project: str, folder: Path) -> dict[str, Any] | None:
    """Return the price of a job's time, None if a part is unknown.

    Parameters
    ----------
    job
        As Google returns it. The time is from its start to its end or now, of a tuning job the
        sum of its trials'.
    folder
        Of the project, with the user's price and catalogue files if there are any.

    Returns
    -------
        The keys `amount`, `an_hour` (of a tuning job: of one trial), `currency`, `sources` and
        `is_estimate`.
    """
    parts = parse_name(job["name"])
    request = view_request(job, cast("Collection", parts.collection), project, parts.region)
    catalogue = machine_catalogue.of_project(folder)
    prices = load_prices(request, price_file(folder))
    cost = estimate_cost(replace(request, trials=1), catalogue, prices)
    if cost.an_hour is None:
        return None
    runs = (job.get("trials") or []) if request.search is not None else [job]
    end = job.get("endTime") if has_ended(job) else timestamps.format(time.time())
    hours = Decimal(_seconds(runs, end)) / _HOUR
    return {
        "amount": json_number(cost.an_hour * hours),
        "an_hour": json_number(cost.an_hour),
        "currency": cost.currency,
        "sources": list(cost.sources),
        "is_estimate": cost.is_estimate,
    }


def _seconds(runs: Iterable[Mapping[str, Any]], end: str | None) -> float:
    times = (
        timestamps.seconds_between(run.get("startTime"), run.get("endTime") or end) for run in runs
    )
    return sum(filter(None, times))
