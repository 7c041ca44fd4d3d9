"""What a job has cost so far, by the prices that are known without a call."""

from __future__ import annotations

import time
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from distlaunch import timestamps
from distlaunch.job import machine_catalogue
from distlaunch.price.book import load_prices, price_file
from distlaunch.price.costs import estimate_cost, json_number

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.engines.api import JobStatus

_HOUR = 3600  # seconds


def cost_so_far(job: JobStatus, folder: Path) -> dict[str, Any] | None:
    """Return the price of a job's time, None if a part is unknown.

    Parameters
    ----------
    job
        Its time is from its start to its end or now, of a tuning job the sum of its trials'.
    folder
        Of the project, with the user's price and catalogue files if there are any.

    Returns
    -------
        The keys `amount`, `an_hour` (of a tuning job: of one trial), `currency`, `sources` and
        `is_estimate`.
    """
    catalogue = machine_catalogue.of_project(folder)
    prices = load_prices(job.request, price_file(folder))
    cost = estimate_cost(replace(job.request, trials=1), catalogue, prices)
    if cost.an_hour is None:
        return None
    now = timestamps.format(time.time())
    runs = [trial.seconds for trial in job.trials] if job.study else [job.run_seconds(now)]
    hours = Decimal(sum(filter(None, runs))) / _HOUR
    return {
        "amount": json_number(cost.an_hour * hours),
        "an_hour": json_number(cost.an_hour),
        "currency": cost.currency,
        "sources": list(cost.sources),
        "is_estimate": cost.is_estimate,
    }
