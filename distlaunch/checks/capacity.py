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

RESERVATION, PERSISTENT_RESOURCE = "reservation", "persistent_resource"  # their keys


def problems(request: JobRequest, next_regions: Sequence[str] = ()) -> Iterator[Problem]:
    """Yield the settings that a reservation or a persistent resource excludes."""
    key = RESERVATION if request.reservations else PERSISTENT_RESOURCE
    if request.reservations and request.persistent_resource:
        what = "a job on a persistent resource cannot use a reservation"
        yield error("reservation-conflict", key, what, f"remove it, or {PERSISTENT_RESOURCE}")
    elif request.reservations and request.strategy != "STANDARD":
        what = f"a {request.strategy} job cannot use a reservation"
        yield error("reservation-conflict", key, what, "remove it, or scheduling.strategy")
    elif request.persistent_resource and request.strategy != "STANDARD":
        what = f"its machines are there, so scheduling.strategy {request.strategy} has no effect"
        yield warning("strategy-ignored", key, what, "remove scheduling.strategy")
    for name in request.reservations:
        if name != reservation.ANY:
            yield from _region_problems(name, request, next_regions)
    if request.persistent_resource and next_regions:
        what = f"{request.persistent_resource} cannot be used in {join_names(next_regions, 'or')}"
        yield error("persistent-resource-region", key, what, "remove scheduling.regions")


def _region_problems(
    full_name: str, request: JobRequest, next_regions: Sequence[str]
) -> Iterator[Problem]:
    parts = reservation.parse(full_name)
    if parts is None:
        if request.project:  # without one it is not complete yet
            what = f"expected projects/P/zones/ZONE/reservations/NAME, got {full_name or 'nothing'}"
            remedy = "'gcloud compute reservations list' prints names and zones"
            yield error("reservation-form", RESERVATION, what, remedy)
    elif request.region and parts.region != request.region:
        what = f"{full_name} is in {parts.region}, and the job in {request.region}"
        remedy = f"write region: {parts.region}, or a reservation in {request.region}"
        yield error("reservation-region", RESERVATION, what, remedy)
    elif next_regions:
        what = f"{full_name} cannot be used in {join_names(next_regions, 'or')}"
        yield error("reservation-region", RESERVATION, what, "remove scheduling.regions")
