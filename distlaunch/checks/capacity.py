"""A job's reservation and persistent resource against its other settings.

https://docs.cloud.google.com/vertex-ai/docs/training/use-reservations has what excludes what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch.checks.problem import error, warning
from distlaunch.job import reservation
from distlaunch.text import join_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distlaunch.checks.problem import Problem
    from distlaunch.job.vertex.view import JobRequest


def problems(request: JobRequest, next_regions: Sequence[str] = ()) -> Iterator[Problem]:
    """Yield the settings that a reservation or a persistent resource excludes."""
    strategy, resource = request.strategy, request.persistent_resource
    if request.reservations and (resource or strategy != "STANDARD"):
        other = "persistent_resource" if resource else "scheduling.strategy"
        what = f"cannot be used with {other}: {resource or strategy}"
        yield error("reservation-conflict", "reservation", what, f"remove it, or {other}")
    elif resource and strategy != "STANDARD":
        what = f"its machines are up, so that {strategy} has no effect"
        yield warning("strategy-ignored", "scheduling.strategy", what, "remove it")
    if resource and next_regions:
        what = f"{resource} cannot be used in {join_names(next_regions, 'or')}"
        remedy = "remove scheduling.regions"
        yield error("persistent-resource-region", "persistent_resource", what, remedy)
    for name in request.reservations:
        region = reservation.region_of(name)
        regions = [each for each in (request.region, *next_regions) if each]
        if region and any(each != region for each in regions):
            what = f"{name} is in {region}, and the job in {join_names(regions, 'or')}"
            remedy = f"write region: {region} without scheduling.regions"
            yield error("reservation-region", "reservation", what, remedy)
