"""Limits of Vertex AI that a job exceeds, whatever machines it requests.

They are those of https://cloud.google.com/vertex-ai/docs/quotas and of the references of
CustomJobSpec and HyperparameterTuningJob. What Google refuses at once is checked too where an image
would be built first.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from distlaunch.checks.problem import error, warning
from distlaunch.job import reservation
from distlaunch.job.vertex.fields import DEFAULT_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from distlaunch.checks.problem import Problem
    from distlaunch.job.machine_catalogue import Catalogue
    from distlaunch.job.vertex.view import JobRequest, PoolRequest

MAX_REPLICAS = 10_000
# Vertex AI's limits of bootDiskSizeGb.
_DISK_GB = (100, 64_000)

_NEED_ACCOUNT = {
    "tensorboard": "tensorboard-without-account",
    "experiment": "experiment-without-account",
}
_CONTEXT = r"projects/[^/]+/locations/(?P<region>[^/]+)/metadataStores/[^/]+/contexts/"

# Field of the request, codes of a wrong form and a wrong region, key, pattern, form, and a command
# that prints what is needed.
_RESOURCES = (
    (
        "tensorboard",
        ("tensorboard-region", "tensorboard-region"),
        "tensorboard",
        r"projects/[^/]+/locations/(?P<region>[^/]+)/tensorboards/[^/]+",
        "projects/{project}/locations/{region}/tensorboards/ID",
        "gcloud ai tensorboards list --region {region}",
    ),
    (
        "experiment",
        ("experiment-region", "experiment-region"),
        "experiment",
        rf"{_CONTEXT}[a-z0-9][a-z0-9-]{{0,127}}",
        "the experiment's name (a-z, 0-9 and -)",
        "https://console.cloud.google.com/vertex-ai/experiments?project={project}",
    ),
    (
        "network",
        ("network-form", ""),
        "network",
        r"projects/[0-9]+/global/networks/[a-z]([-a-z0-9]*[a-z0-9])?",
        "projects/NUMBER/global/networks/NAME",
        'gcloud projects describe {project} --format="value(projectNumber)"',
    ),
    (
        "service_account",
        ("account-form", ""),
        "service_account",
        r"[^\s@]+@([a-z0-9-]+\.)+gserviceaccount\.com",
        "NAME@{project}.iam.gserviceaccount.com",
        "gcloud iam service-accounts list --project={project}",
    ),
    (
        "encryption_key",
        ("key-form", "key-region"),
        "vertex.encryptionSpec.kmsKeyName",
        r"projects/[^/]+/locations/(?P<region>[^/]+)/keyRings/[^/]+/cryptoKeys/[^/]+",
        "projects/{project}/locations/{region}/keyRings/RING/cryptoKeys/KEY",
        "gcloud kms keys list --location={region} --keyring=RING",
    ),
)


def problems(
    request: JobRequest, catalogue: Catalogue, *, is_moved: bool = False
) -> Iterator[Problem]:
    """Yield the limits that a job exceeds in its region, or one to which it may be moved."""
    yield from _count_problems(request)
    for pool in request.pools:
        yield from _disk_problems(pool, catalogue.machine(pool.machine).boot_disks)
    yield from _scheduling_problems(request)
    yield from _resource_problems(request, is_moved=is_moved)
    yield from _tracking_problems(request)
    yield from _capacity_problems(request)
    if request.search is not None:
        yield from _tuning_problems(request.search)


def _count_problems(request: JobRequest) -> Iterator[Problem]:
    # From the API reference of Vertex AI's custom jobs.
    counts = [
        ("name-length", "name", len(request.name), 128, "characters"),
        ("label-count", "labels", len(request.labels), 64, "labels, one of them added by submit"),
        ("pool-count", "cluster", len(request.pools), 4, "worker pools"),
    ]
    for pool in request.pools:
        counts += [
            ("replica-count", pool.key("count"), pool.replicas, MAX_REPLICAS, "machines"),
            ("variable-count", "env", pool.variables, 100, f"variables of {pool.role}"),
        ]
    for code, key, count, most, noun in counts:
        if count > most:
            yield error(code, key, f"{count:,} {noun}", f"use {most:,} or fewer")


def _disk_problems(pool: PoolRequest, allowed: Sequence[str]) -> Iterator[Problem]:
    least, most = _DISK_GB
    if pool.disk_gb is not None and not least <= pool.disk_gb <= most:
        what = f"boot disk must be {least} to {most} GB, got {pool.disk_gb}"
        remedy = f"write bootDiskSizeGb: {min(max(pool.disk_gb, least), most)}"
        yield error("disk-size", pool.section, what, remedy)
    if pool.disk_type is not None and pool.disk_type not in allowed:
        choices = " or ".join(allowed)
        what = f"boot disk of {pool.machine} must be {choices}, got {pool.disk_type}"
        remedy = f"write bootDiskType: {allowed[0]}, or leave it out"
        yield error("disk-type", pool.section, what, remedy)


def _scheduling_problems(request: JobRequest) -> Iterator[Problem]:
    is_flex_start = request.strategy == "FLEX_START"
    if request.timeout > DEFAULT_TIMEOUT:
        report = error if is_flex_start else warning
        limit = "FLEX_START allows" if is_flex_start else "Vertex AI documents"
        days = request.timeout / DEFAULT_TIMEOUT * 7
        what = f"{days:.3g} days is more than the 7 days that {limit}"
        remedy = "write timeout: 7d, and resume from the last checkpoint after that"
        yield report("timeout-too-long", "scheduling.timeout", what, remedy)
    if request.max_wait is not None and not is_flex_start:
        what = f"{request.strategy} does not wait for machines, so max_wait has no effect"
        remedy = "leave it out, or write strategy: FLEX_START"
        yield warning("max-wait-ignored", "scheduling.max_wait", what, remedy)


def _tracking_problems(request: JobRequest) -> Iterator[Problem]:
    """Yield what Google's SDK refuses of a job with a TensorBoard or an experiment."""
    for key, code in _NEED_ACCOUNT.items():
        if getattr(request, key) is not None and request.service_account is None:
            what = f"a job with {key} needs a service account"
            remedy = "set service_account: one with roles/aiplatform.user and roles/storage.admin"
            yield error(code, key, what, remedy)
    if request.tensorboard is not None and request.experiment is not None:
        what = "cannot be used with tensorboard"
        remedy = "remove tensorboard; the experiment's own TensorBoard is used"
        yield error("experiment-conflict", "experiment", what, remedy)
    if request.experiment_run is not None and request.experiment is None:
        what = "needs the experiment of the run"
        yield error("experiment-conflict", "experiment_run", what, "add experiment: NAME")


def ignored_web_access(request: JobRequest, place: str, remedy: str) -> Iterator[Problem]:
    """Yield a warning of a job with web access in a place that has none."""
    if request.web_access:
        yield warning("web-access-ignored", "web_access", f"has no effect {place}", remedy)


def _resource_problems(request: JobRequest, *, is_moved: bool) -> Iterator[Problem]:
    names = {"project": request.project or "PROJECT", "region": request.region or "REGION"}
    for field, (code, region_code), key, pattern, form, command in _RESOURCES:
        value = getattr(request, field)
        if value is None:
            continue
        expected, shell = form.format(**names), command.format(**names)
        match = re.fullmatch(pattern, value, re.ASCII)
        if match is None:
            message = f"expected {expected}, got {value or 'nothing'}"
            yield error(code, key, message, f"write that form; '{shell}' prints what is needed")
        elif is_moved and "region" in match.groupdict():
            message = f"it is in one region, and the job may be moved to {request.region}"
            yield error(region_code, key, message, f"remove scheduling.regions, or {key}")
        elif request.region and match.groupdict().get("region", request.region) != request.region:
            message = f"{value} is in {match['region']}, and the job in {request.region}"
            remedy = f"use one in {request.region}; '{shell}' lists them"
            yield error(region_code, key, message, remedy)


def _capacity_problems(request: JobRequest) -> Iterator[Problem]:
    """Yield the settings that a reservation or a persistent resource excludes.

    https://docs.cloud.google.com/vertex-ai/docs/training/use-reservations
    """
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


def _tuning_problems(search: Mapping[str, Any]) -> Iterator[Problem]:
    trials, parallel = search.get("maxTrialCount", 0), search.get("parallelTrialCount", 0)
    if trials < 1:
        what = f"needs 1 trial or more, got {trials}"
        yield error("tuning-impossible", "tuning.trials", what, "write trials: 20")
    if parallel > trials > 0:
        what = f"{parallel} trials at once are more than the {trials} in all"
        remedy = f"write parallel_trials: {trials} or less, or trials: {parallel} or more"
        yield error("tuning-impossible", "tuning.parallel_trials", what, remedy)
    if not search.get("studySpec", {}).get("parameters"):
        what = "needs a parameter to search"
        yield error("tuning-impossible", "tuning.parameters", what, "add one")
