"""Whether a job's reservation and persistent resource exist, fit it and are free."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from distlaunch.checks.cloud.context import not_checked
from distlaunch.checks.problem import error, warning
from distlaunch.errors import GoogleError
from distlaunch.job import reservation
from distlaunch.job.persistent_resource import COLLECTION, shortages
from distlaunch.text import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from distlaunch.checks.cloud.context import CloudContext
    from distlaunch.checks.problem import Problem
    from distlaunch.job.vertex.view import JobRequest

_LIST = "'distlaunch machines list' prints those there"


def checks(context: CloudContext) -> Iterator[tuple[str, Callable[[], Iterator[Problem]]]]:
    """Yield the location and the check of each."""
    request = context.request
    for name in request.reservations:
        if reservation.region_of(name):
            yield f"reservation {name}", partial(_reservation_problems, context, name)
    if request.persistent_resource and request.project and request.region:
        where = f"persistent resource {request.persistent_resource}"
        yield where, partial(_persistent_resource_problems, context, where)


def _reservation_problems(context: CloudContext, full_name: str) -> Iterator[Problem]:
    _, project, _, zone, _, name = full_name.split("/")
    where = f"reservation {full_name}"
    try:
        found = context.call("GET", "compute", quote(full_name))
    except GoogleError as refusal:
        if refusal.status == 404:
            remedy = f"'gcloud compute reservations list --project={project}' prints those there"
            yield error("reservation-missing", where, "does not exist", remedy)
            return
        grant = context.grant(f"projects add-iam-policy-binding {project}", "roles/compute.viewer")
        yield not_checked(where, refusal, grant=grant)
        return
    update = f"run 'gcloud compute reservations update {name} --project={project} --zone={zone}"
    if (found.get("reservationSharingPolicy") or {}).get("serviceShareType") != "ALLOW_ALL":
        remedy = f"{update} --reservation-sharing-policy=ALLOW_ALL'"
        yield error("reservation-not-shared", where, "Vertex AI may not use it", remedy)
    if found.get("status") != "READY":
        what = f"it is {found.get('status')}, not READY"
        yield error("reservation-full", where, what, "wait until it is READY")
    if specific := found.get("specificReservation"):  # there is none for TPUs
        yield from _machine_problems(context, full_name, specific, update)


def _machine_problems(
    context: CloudContext, full_name: str, specific: Mapping[str, Any], update: str
) -> Iterator[Problem]:
    """Yield that reserved machines differ from the job's, or that too few are free."""
    where, own = f"reservation {full_name}", specific.get("instanceProperties") or {}
    gpus = {
        str(each.get("acceleratorType")).rpartition("/")[2]: each.get("acceleratorCount")
        for each in own.get("guestAccelerators") or []
    }
    pools = [pool for pool in context.request.pools if pool.reservation == full_name]
    for pool in pools:
        name = (pool.accelerator or "").lower().replace("_", "-")
        # A machine that comes with its GPUs may be reserved without naming them.
        is_implied = not gpus and context.catalogue.machine(pool.machine).needs_accelerator
        is_same = is_implied or gpus == ({name: pool.accelerator_count} if name else {})
        if own.get("machineType") != pool.machine or not is_same:
            kind = "".join(f" with {count} {gpu}" for gpu, count in gpus.items())
            what = f"it is of {own.get('machineType')}{kind}, and {pool.role} {pool.describe()}"
            remedy = "use the same machines, or set reservationAffinity of each pool under vertex:"
            yield error("reservation-machines", where, what, remedy)
    count, used = int(specific.get("count", 0)), int(specific.get("inUseCount", 0))
    needed = sum(pool.replicas for pool in pools) * context.request.trials_at_once
    if needed > count - used:
        report = error if needed > count else warning
        what = f"the job needs {plural(needed, 'machine')}, and {count - used} of {count} are free"
        remedy = f"{update} --vm-count={used + needed}', or wait for what uses it"
        yield report("reservation-full", where, what, remedy)


def _persistent_resource_problems(context: CloudContext, where: str) -> Iterator[Problem]:
    request, region = context.request, context.request.region
    name = quote(request.persistent_resource or "", safe="")
    path = f"projects/{context.project}/locations/{region}/{COLLECTION}/{name}"
    try:
        found = context.call("GET", "aiplatform", path, region=region)
    except GoogleError as refusal:
        if refusal.status != 404:
            raise
        remedy = f"run 'distlaunch machines up {name}'; {_LIST}"
        yield error("persistent-resource-missing", where, f"does not exist in {region}", remedy)
        return
    if (state := found.get("state")) != "RUNNING":
        report = error if state in ("ERROR", "STOPPING") else warning
        remedy = f"wait, or use another; {_LIST}"
        yield report("persistent-resource-down", where, f"it is {state}, not RUNNING", remedy)
    for setting, own, wanted in _settings(found, request):
        if own != wanted:
            what = f"its {setting} is {own or 'not set'}, and the job's {wanted or 'not set'}"
            remedy = "make them the same, as Vertex AI refuses the job otherwise"
            yield error("persistent-resource-settings", where, what, remedy)
    for short in shortages(found, request.pools, request.trials_at_once):
        report = error if short.needed > short.most else warning
        what = (
            f"{short.free} of {short.most} {short.machine} are free, the job needs {short.needed}"
        )
        remedy = f"use its machines and disks, or wait for its jobs; {_LIST}"
        yield report("persistent-resource-full", where, what, remedy)


def _settings(found: Mapping[str, Any], request: JobRequest) -> Iterator[tuple[str, Any, Any]]:
    """Yield what has to be the same (the reference of CustomJobSpec), and what each has."""
    yield "network", found.get("network") or None, request.network
    key = (found.get("encryptionSpec") or {}).get("kmsKeyName")
    yield "encryption key", key, request.encryption_key
    runtime = (found.get("resourceRuntimeSpec") or {}).get("serviceAccountSpec") or {}
    if request.service_account and not runtime.get("enableCustomServiceAccount"):
        yield "service account", None, request.service_account
