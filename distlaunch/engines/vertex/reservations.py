"""The zone of a reservation that a job names without it; Vertex AI needs the full name."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote

from distlaunch.errors import GoogleError
from distlaunch.job import reservation
from distlaunch.text import join_names

if TYPE_CHECKING:
    from distlaunch.engines.vertex.client import Session
    from distlaunch.job.launch import LaunchRequest


def with_zone(launch: LaunchRequest, session: Session) -> LaunchRequest:
    """Return a launch whose reservation has its zone.

    GoogleError is raised if the job's region has no reservation of the name, or several. The
    emulator has no reservations: the zone is the region's first.
    """
    job, region = launch.job, launch.job.region
    name = job.reservation
    if name is None or not job.project or not region or not reservation.is_plain_name(name):
        return launch
    zones = [f"{region}-a"] if launch.is_for_emulator else _zones(session, job.project, name)
    zones = [zone for zone in zones if zone.rpartition("-")[0] == region]
    if len(zones) != 1:
        what = f"is in {join_names(zones)}" if zones else f"does not exist in {region}"
        remedy = f"'gcloud compute reservations list --project={job.project}' prints those there"
        raise GoogleError(
            f"reservation {name} {what}",
            remedy=f"write ZONE/{name}" if zones else remedy,
            status=HTTPStatus.NOT_FOUND,
        )
    return replace(launch, job=replace(job, reservation=f"{zones[0]}/{name}"))


def _zones(session: Session, project: str, name: str) -> list[str]:
    """Return the zones of the project's reservations of a name.

    https://cloud.google.com/compute/docs/reference/rest/v1/reservations/aggregatedList
    """
    path = f"projects/{quote(project, safe='')}/aggregated/reservations"
    items = session.call("GET", "compute", path, params={"filter": f'name="{name}"'}).get("items")
    return [
        place.rpartition("/")[2]
        for place, content in (items or {}).items()
        if any(each.get("name") == name for each in content.get("reservations") or [])
    ]
