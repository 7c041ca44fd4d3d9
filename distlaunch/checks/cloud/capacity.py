"""Whether a job's reservation and persistent resource are there, fit it and are free."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from distlaunch.checks.cloud.context import not_checked
from distlaunch.checks.problem import error, warning
from distlaunch.errors import GoogleError
from distlaunch.job import reservation
from distlaunch.job.persistent_resource import place, read_pools
from distlaunch.text import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from distlaunch.checks.cloud.context import CloudContext
    from distlaunch.checks.problem import Problem
    from distlaunch.job.reservation import ReservationName
    from distlaunch.job.vertex.view import JobRequest

_MACHINES = "'distlaunch machines list' prints those that there are"


def checks(context: CloudContext) -> Iterator[tuple[str, Callable[[], Iterator[Problem]]]]:
    """Yield the location and the check of each."""
    request = context.request
    for name in request.reservations:
        if parts := reservation.parse(name):
            yield f"reservation {name}", partial(_reservation_problems, context, name, parts)
    if request.persistent_resource and request.project and request.region:
        where = f"persistent resource {request.persistent_resource}"
        yield where, partial(_persistent_resource_problems, context, where)


def _reservation_problems(
    context: CloudContext, full_name: str, parts: ReservationName
) -> Iterator[Problem]:
    project, zone, name = parts
    where, options = f"reservation {full_name}", f"--project={project} --zone={zone}"
    try:
        found = context.call("GET", "compute", quote(full_name))
    except GoogleError as refusal:
        if refusal.status == 404:
            remedy = f"'gcloud compute reservations list --project={project}' prints those there"
            yield error("reservation-missing", where, "does not exist", remedy)
        else:
            bind = f"projects add-iam-policy-binding {project}"
            yield not_checked(where, refusal, grant=context.grant(bind, "roles/compute.viewer"))
        return
    update = f"run 'gcloud compute reservations update {name} {options}"
    policy = found.get("reservationSharingPolicy") or {}
    if policy.get("serviceShareType") != "ALLOW_ALL":
        remedy = f"{update} --reservation-sharing-policy=ALLOW_ALL'"
        yield error("reservation-not-shared", where, "Vertex AI may not use it", remedy)
    if found.get("status") != "READY":
        what, remedy = f"it is {found.get('status')}, not READY", "wait until it is"
        yield error("reservation-full", where, what, remedy)
    if specific := found.get("specificReservation"):  # none where it is of TPUs
        yield from _machine_problems(context, where, full_name, specific, update)


def _machine_problems(
    context: CloudContext, where: str, full_name: str, specific: Mapping[str, Any], update: str
) -> Iterator[Problem]:
    """Yield that reserved machines differ from the job's, or that there are too few."""
    own, needed = specific.get("instanceProperties") or {}, 0
    reserved = {
        str(each.get("acceleratorType")).rpartition("/")[2]: each.get("acceleratorCount")
        for each in own.get("guestAccelerators") or []
    }
    for pool in context.request.pools:
        if pool.reservation != full_name:
            continue
        needed += pool.replicas * context.request.trials_at_once
        accelerator = (pool.accelerator or "").lower().replace("_", "-")
        wanted = {accelerator: pool.accelerator_count} if accelerator else {}
        # A machine that comes with its GPUs may be reserved without naming them.
        is_same = wanted == reserved or (
            not reserved and context.catalogue.machine(pool.machine).needs_accelerator
        )
        if own.get("machineType") != pool.machine or not is_same:
            gpus = "".join(f" with {count} {kind}" for kind, count in reserved.items())
            what = (
                f"it is of {own.get('machineType')}{gpus}, and {pool.role} needs {pool.describe()}"
            )
            remedy = "use the same machines, or set reservationAffinity of each pool under vertex:"
            yield error("reservation-machine", where, what, remedy)
    count, used = int(specific.get("count", 0)), int(specific.get("inUseCount", 0))
    if needed > count - used:
        report = error if needed > count else warning
        what = f"the job needs {plural(needed, 'machine')}, and {count - used} of {count} are free"
        remedy = f"{update} --vm-count={used + needed}', or wait for what uses it"
        yield report("reservation-full", where, what, remedy)


def _persistent_resource_problems(context: CloudContext, where: str) -> Iterator[Problem]:
    request = context.request
    name, place_name = request.persistent_resource, f"{context.project}/locations/{request.region}"
    try:
        path = f"projects/{place_name}/persistentResources/{name}"
        found = context.call("GET", "aiplatform", path, region=request.region)
    except GoogleError as refusal:
        if refusal.status != 404:
            raise
        remedy = f"run 'distlaunch machines up {name}'; {_MACHINES}"
        yield error("persistent-resource-missing", where, "does not exist", remedy)
        return
    state = found.get("state")
    if state != "RUNNING":
        report = error if state in ("ERROR", "STOPPING") else warning
        what = f"it is {state}, not RUNNING"
        yield report("persistent-resource-state", where, what, f"wait, or use another; {_MACHINES}")
    for what, there, wanted in _settings(found, request):
        if there != wanted:
            remedy = "make them the same, as Google refuses the job otherwise"
            text = f"its {what} is {there or 'not set'}, and the job's {wanted or 'not set'}"
            yield error("persistent-resource-settings", where, text, remedy)
    machine_pools = read_pools(found)
    needed, homeless = place(request.pools, machine_pools, request.trials_at_once)
    for pool in homeless:
        there_are = ", ".join(each.machines.describe() for each in machine_pools)
        what = f"it has no {pool.describe()} with the job's disk, but {there_are}"
        yield error("persistent-resource-machine", where, what, f"use its machines; {_MACHINES}")
    for index, count in needed.items():
        each = machine_pools[index]
        free = each.most - each.used
        if count > free:
            report = error if count > each.most else warning
            what = f"the job needs {count} {each.machines.machine}, {free} of {each.most} are free"
            remedy = f"use fewer, or wait for the jobs on it; {_MACHINES}"
            yield report("persistent-resource-full", where, what, remedy)


def _settings(found: Mapping[str, Any], request: JobRequest) -> Iterator[tuple[str, Any, Any]]:
    """Yield what has to be the same, and what each has.

    https://docs.cloud.google.com/vertex-ai/docs/reference/rest/v1/CustomJobSpec
    """
    yield "network", found.get("network") or None, request.network
    key = (found.get("encryptionSpec") or {}).get("kmsKeyName")
    yield "encryption key", key, request.encryption_key
    runtime = (found.get("resourceRuntimeSpec") or {}).get("serviceAccountSpec") or {}
    if request.service_account and not runtime.get("enableCustomServiceAccount"):
        yield "service account", None, request.service_account
