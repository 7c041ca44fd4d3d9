"""The quotas of Vertex AI training: what a job needs, what other jobs use, and the limits.

They are per project and region, and separate from Compute Engine's; Google refuses a job that
exceeds them with 429. A machine counts towards the quota of its accelerators and that of its
family's CPUs, those of SPOT and FLEX_START towards quotas called preemptible
(https://cloud.google.com/vertex-ai/docs/quotas, …/docs/training/schedule-jobs-dws#quota).

``preemptible_cpus`` is known from the refusal of a SPOT job on N1. ``preemptible_<family>_cpus`` of
other families is inferred; where Google has no quota of an inferred name, there is no problem.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from distlaunch.background import BackgroundTask
from distlaunch.checks.cloud.context import CONSOLE, not_checked
from distlaunch.checks.problem import error
from distlaunch.engines.vertex.jobs import ACTIVE, Jobs
from distlaunch.errors import DistlaunchError, GoogleError
from distlaunch.job import vertex
from distlaunch.job.machine_catalogue import chips, offered_as
from distlaunch.job.vertex.view import pools_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from distlaunch.checks.cloud.context import CloudContext
    from distlaunch.checks.problem import Problem
    from distlaunch.job.machine_catalogue import Catalogue
    from distlaunch.job.vertex.view import PoolRequest

PREFIX = "custom_model_training_"

_SERVICE = "aiplatform.googleapis.com"
# How Service Usage writes a quota without a limit.
_UNLIMITED = -1
_PREEMPTIBLE = ("SPOT", "FLEX_START", "LOW_COST")  # the last is Google's former name of SPOT


def checks(context: CloudContext) -> Iterator[tuple[str, Callable[[], Iterator[Problem]]]]:
    """Yield the location and the check of each quota that the job needs."""
    request = context.request
    if request.persistent_resource:  # whose machines count towards the quota already
        return
    used = BackgroundTask(lambda: _used(context))
    for metric, amount in sorted(
        demand(request.pools, context.catalogue, request.strategy).items()
    ):
        total = amount * request.trials_at_once
        yield f"quota {metric}", partial(_problems, context, metric, total, used)


def demand(
    pools: Iterable[PoolRequest], catalogue: Catalogue, strategy: str | None
) -> Counter[str]:
    """Return how much of each quota some pools need; CPUs of unknown machines are not counted."""
    prefix = f"{PREFIX}preemptible_" if strategy in _PREEMPTIBLE else PREFIX
    amounts: Counter[str] = Counter()
    for pool in pools:
        for name, amount in _machine_demand(pool, catalogue):
            amounts[f"{prefix}{name}"] += amount * pool.replicas
    return amounts


def limit(quota_metric: Mapping[str, Any], region: str) -> int | None:
    """Return the limit in a region, -1 for none, and None if it is unknown.

    In a ConsumerQuotaMetric of serviceusage.v1beta1, the bucket without dimensions is of all
    regions without one of their own.
    """
    limits = {
        tuple((bucket.get("dimensions") or {}).items()): bucket.get("effectiveLimit")
        for entry in quota_metric.get("consumerQuotaLimits") or []
        for bucket in entry.get("quotaBuckets") or []
    }
    value = limits.get((("region", region),), limits.get(()))
    return None if value is None else int(value)


def _problems(
    context: CloudContext, metric: str, needed: int, used: BackgroundTask[Counter[str]]
) -> Iterator[Problem]:
    """Yield that the job needs more than the limit, or than other jobs leave of it."""
    location, region = f"quota {metric}", context.request.region
    link = f"{CONSOLE}/iam-admin/quotas?project={context.request.project}"
    name = quote(f"{_SERVICE}/{metric}", safe="")
    path = f"projects/{context.project}/services/{_SERVICE}/consumerQuotaMetrics/{name}"
    options = {"version": "v1beta1", "params": {"view": "FULL"}}
    try:
        allowed = limit(context.call("GET", "serviceusage", path, **options), region)
        reason = "Google lists no limit for it, which often means 0"
    except GoogleError as refusal:
        if refusal.status != 404:
            raise
        if metric.partition("_preemptible_")[2].endswith("_cpus"):  # an inferred name
            return
        allowed, reason = None, "Google has no quota of this name"
    if allowed is None:
        unknown = f"{reason}, and the job needs {needed} in {region}"
        yield not_checked(location, DistlaunchError(unknown, remedy=f"see {link}"))
        return
    if allowed == _UNLIMITED:
        return
    trials = context.request.trials_at_once
    at_once = f" ({trials} trials at once)" if trials > 1 else ""
    message = f"the job needs {needed}{at_once}, the limit in {region} is {allowed}"
    remedy = f"choose another machine or region, or request more of {metric} at {link}"
    try:
        in_use = used.result()[metric]
        message = f"{message}, and active jobs use {in_use}"
    except GoogleError as refusal:
        in_use = 0
        if needed <= allowed:
            yield not_checked(f"quotas that jobs in {region} use", refusal)
    if needed > allowed:
        yield error("quota-too-low", location, message, remedy)
    elif needed + in_use > allowed:
        remedy = f"wait for the jobs of 'distlaunch list', or {remedy}"
        yield error("quota-in-use", location, message, remedy)


def _machine_demand(pool: PoolRequest, catalogue: Catalogue) -> Iterator[tuple[str, int]]:
    """Yield the quotas of one machine, without their prefix."""
    kind, quotas = catalogue.machine(pool.machine), catalogue.accelerator_quotas
    tpu, count = kind.tpu, chips(pool.topology or "")
    if not (tpu and pool.topology) and (pool.accelerator or "").startswith("TPU_"):
        tpu, count = (
            offered_as(kind, pool.accelerator, pool.accelerator_count),
            pool.accelerator_count,
        )
    if tpu:
        yield quotas.get(tpu, tpu.lower()), count
        return
    if pool.accelerator:
        gpu = pool.accelerator.lower().removeprefix("nvidia_").removeprefix("tesla_")
        yield quotas.get(pool.accelerator, f"nvidia_{gpu}_gpus"), pool.accelerator_count
    if kind.cpus:
        yield kind.cpu_quota or f"{kind.family.lower()}_cpus", kind.cpus


def _used(context: CloudContext) -> Counter[str]:
    """Return how much of each quota the active jobs in the region use.

    The trials of a tuned job are listed as jobs, too, and are counted with it.
    """
    request = context.request
    in_region = Jobs(context.session, request.project, request.region)
    jobs = [
        (job, job.get(spec) or {})
        for collection, spec in vertex.SPECS.items()
        for job in in_region.list(collection, ACTIVE)
    ]
    trials = {trial.get("customJob") for job, _ in jobs for trial in job.get("trials") or []}
    amounts: Counter[str] = Counter()
    for job, spec in jobs:
        if job.get("name") in trials or _uses_persistent_resource(spec):
            continue
        strategy = (spec.get("scheduling") or {}).get("strategy")
        pools = pools_of(spec.get("workerPoolSpecs") or [])
        at_once = max(1, int(job.get("parallelTrialCount") or 1))
        for metric, amount in demand(pools, context.catalogue, strategy).items():
            amounts[metric] += amount * at_once
    return amounts


def _uses_persistent_resource(spec: Mapping[str, Any]) -> bool:
    """Whether a job runs on existing machines, which count towards the quota already."""
    return bool(spec.get("persistentResourceId"))
