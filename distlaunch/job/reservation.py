"""A reservation of Compute Engine's as the ``reservationAffinity`` of Google's machineSpec.

https://docs.cloud.google.com/vertex-ai/docs/training/use-reservations
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ANY = "any"
"""The value of ``reservation`` for any one of the project with the pools' machines."""

PENDING_ZONE = "<zone known at the submit>"
AFFINITY = "reservationAffinity"
_KEY = "compute.googleapis.com/reservation-name"
_ZONE, _NAME = r"[a-z]+(?:-[a-z]+)+[0-9]+-[a-z]", r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"
PLAIN_NAME = _NAME
SHORT_NAME = rf"{_ZONE}/{_NAME}"
FULL_NAME = rf"projects/[^/\s]+/zones/{_ZONE}/reservations/{_NAME}"


def region_of(full_name: str) -> str | None:
    """Return the region of a reservation's zone, None if it has no full name."""
    is_full = re.fullmatch(FULL_NAME, full_name, re.ASCII)
    return full_name.split("/")[3].rpartition("-")[0] if is_full else None


def is_plain_name(name: str) -> bool:
    """Whether a reservation is named without its zone."""
    return name != ANY and re.fullmatch(PLAIN_NAME, name, re.ASCII) is not None


def of_machine(spec: Mapping[str, Any]) -> str | None:
    """Return the full name of the reservation of a machineSpec, `ANY`, or None without one."""
    affinity = spec.get(AFFINITY) or {}
    kind = affinity.get("reservationAffinityType")
    if kind == "SPECIFIC_RESERVATION":
        return str(next(iter(affinity.get("values") or []), ""))
    return ANY if kind == "ANY_RESERVATION" else None


def write(specs: Sequence[dict[str, Any]], reservation: str, project: str | None) -> None:
    """Set a reservation in the pools with accelerators, or in all if no pool has any."""
    machines = [spec["machineSpec"] for spec in specs if spec.get("machineSpec")]
    reserved = [machine for machine in machines if machine.get("acceleratorType")] or machines
    for machine in reserved:
        machine[AFFINITY] = _affinity(reservation, project)


def _affinity(reservation: str, project: str | None) -> dict[str, Any]:
    if reservation == ANY:
        return {"reservationAffinityType": "ANY_RESERVATION"}
    if is_plain_name(reservation):
        reservation = f"{PENDING_ZONE}/{reservation}"
    if project and reservation.count("/") == 1:
        zone, name = reservation.split("/")
        reservation = f"projects/{project}/zones/{zone}/reservations/{name}"
    kind = "SPECIFIC_RESERVATION"
    return {"reservationAffinityType": kind, "key": _KEY, "values": [reservation]}
