"""A job's reservation and persistent resource against its other settings.

https://docs.cloud.google.com/vertex-ai/docs/training/use-reservations has what excludes what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch.checks.problem import error, warning
from distlaunch.job import reservation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.problem import Problem
    from distlaunch.job.vertex.view import JobRequest


def problems(request: JobRequest) -> Iterator[Problem]:
    """Yield the settings that a reservation or a persistent resource excludes."""
    strategy, resource = request.strategy, request.persistent_resource
    if request.reservations and (resource or strategy != "STANDARD"):
        other = "persistent_resource" if resource else "scheduling.strategy"
        what = f"cannot be used with {other}: {resource or strategy}"
        yield error("reservation-conflict", "reservation", what, f"remove it, or {other}")
    elif resource and strategy != "STANDARD":
        what = f"its machines are up, so that {strategy} has no effect"
        yield warning("strategy-ignored", "scheduling.strategy", what, "remove it")
    for name in request.reservations:
        region = reservation.region_of(name)
        if region and request.region and region != request.region:
            what = f"{name} is in {region}, and the job in {request.region}"
            yield error("reservation-region", "reservation", what, f"write region: {region}")
