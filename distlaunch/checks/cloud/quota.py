"""The quotas of Vertex AI training: what a job takes of them, what is taken, what is allowed.

They are per project and region, apart from Compute Engine's, and a job that takes more is refused
with 429: ``The following quota metrics exceed quota limits``. A machine takes of the quota of its
accelerators and of that of its family's CPUs; what SPOT and FLEX_START take is called preemptible
(https://cloud.google.com/vertex-ai/docs/quotas, …/docs/training/schedule-jobs-dws#quota).

``preemptible_cpus`` is known from a refusal of a Spot job on N1. That the other families have
``preemptible_<family>_cpus``, as they have ``<family>_cpus``, is inferred from the other names and
stands nowhere; where Google knows no quota of an inferred name, nothing is said.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from distlaunch.background import BackgroundTask
from distlaunch.checks.cloud.context import CONSOLE, unanswered
from distlaunch.checks.problem import error
from distlaunch.checks.request_view import pools_of
from distlaunch.errors import GoogleError
from distlaunch.job import vertex
from distlaunch.job.machine_catalogue import chips, offered_as

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from distlaunch.checks.cloud.context import About
    from distlaunch.checks.problem import Problem
    from distlaunch.checks.request_view import PoolRequest
    from distlaunch.job.machine_catalogue import Catalogue

PREFIX = "custom_model_training_"

_SERVICE = "aiplatform.googleapis.com"
_UNLIMITED = -1
_PREEMPTIBLE = ("SPOT", "FLEX_START", "LOW_COST")  # the last is Google's older word for SPOT
_OF_PREEMPTIBLE = "preemptible_"
_KNOWN_CPUS = f"{_OF_PREEMPTIBLE}cpus"
_SHARING = ("n1", "e2")  # families with one quota of CPUs
_SHORT = {"h100_80gb": "h100", "h100_mega_80gb": "h100_mega", "h200_141gb": "h200"}
_TPUS = {"TPU_V5_LITEPOD": "tpu_v5e", "TPU_7X": "tpu7x"}
_HOLDING = " OR ".join(f'state="JOB_STATE_{state}"' for state in ("QUEUED", "PENDING", "RUNNING"))


def checks(about: About) -> Iterator[tuple[str, Callable[[], Iterator[Problem]]]]:
    """Yield what each quota of the job is called, and what looks at it."""
    asked, job = about.asked, about.order.job
    if _is_on_persistent(job.vertex.get(vertex.SPECS[vertex.collection(job)]) or {}):
        return
    is_preemptible = asked.strategy in _PREEMPTIBLE
    wanted = demand(asked.pools, about.catalogue, is_preemptible=is_preemptible)
    if wanted:
        used = BackgroundTask(lambda: _used(about))
        for metric, amount in sorted(wanted.items()):
            check = _Check(about, metric, amount * asked.trials_at_once, used)
            yield f"quota {metric}", check.problems


def demand(
    pools: Iterable[PoolRequest], catalogue: Catalogue, *, is_preemptible: bool
) -> Counter[str]:
    """Return how much of each quota some pools take, by its metric.

    Parameters
    ----------
    catalogue
        Knows the CPUs of a machine; those of one that it doesn't know are not counted.
    is_preemptible
        Whether they are scheduled as SPOT or FLEX_START.
    """
    found: Counter[str] = Counter()
    for pool in pools:
        for name, amount in _of_machine(pool, catalogue):
            between = _OF_PREEMPTIBLE if is_preemptible else ""
            found[f"{PREFIX}{between}{name}"] += amount * pool.replicas
    return found


def limit(answer: Mapping[str, Any], region: str) -> int | None:
    """Return what is allowed in a region, -1 for no limit and None where it is not said.

    Parameters
    ----------
    answer
        A ConsumerQuotaMetric of serviceusage.v1beta1. The bucket without dimensions stands for all
        regions that have none of their own.
    """
    buckets = [
        bucket
        for each in answer.get("consumerQuotaLimits") or []
        for bucket in each.get("quotaBuckets") or []
    ]
    for dimensions in ({"region": region}, {}):
        for bucket in buckets:
            if (bucket.get("dimensions") or {}) == dimensions:
                said = bucket.get("effectiveLimit")
                return None if said is None else int(said)
    return None


class _Check:
    """Looks at one quota.

    Parameters
    ----------
    metric, wanted
        Its name, and what the job takes of it.
    used
        What other jobs take of all quotas.
    """

    def __init__(
        self, about: About, metric: str, wanted: int, used: BackgroundTask[Counter[str]]
    ) -> None:
        self._about = about
        self._metric = metric
        self._wanted = wanted
        self._used = used

    def problems(self) -> Iterator[Problem]:
        """Yield that the job takes more than is allowed, or than is left."""
        try:
            allowed = self._allowed()
        except GoogleError as refusal:
            if refusal.status != 404:
                raise
            if not _is_inferred(self._metric):
                yield self._unknown("Google knows no quota of this name")
            return
        if allowed is None:
            yield self._unknown("Google says no limit for it, which often means 0")
        elif allowed != _UNLIMITED:
            yield from self._compare(allowed)

    def _allowed(self) -> int | None:
        about = self._about
        metric = quote(f"{_SERVICE}/{self._metric}", safe="")
        path = f"projects/{about.project}/services/{_SERVICE}/consumerQuotaMetrics/{metric}"
        answer = about.get("serviceusage", path, version="v1beta1", params={"view": "FULL"})
        return limit(answer, about.asked.region)

    def _compare(self, allowed: int) -> Iterator[Problem]:
        wanted, region = self._wanted, self._about.asked.region
        try:
            used = self._used.result()[self._metric]
        except GoogleError as problem:
            if wanted <= allowed:
                yield unanswered(f"what jobs in {region} take of their quotas", problem)
                return
            used = None
        takes = f"the job takes {wanted}{self._trials()}, {allowed} are allowed in {region}"
        if used is not None:
            takes += f", and jobs that run or wait take {used}"
        if wanted > allowed:
            yield error("quota-too-low", self._where, takes, self._remedy)
        elif used is not None and wanted + used > allowed:
            remedy = f"wait for those jobs, as 'distlaunch list' shows them, or {self._remedy}"
            yield error("quota-in-use", self._where, takes, remedy)

    def _unknown(self, why: str) -> Problem:
        region = self._about.asked.region
        return unanswered(
            self._where, f"{why}, and the job takes {self._wanted} in {region}; see {self._link}"
        )

    @property
    def _where(self) -> str:
        return f"quota {self._metric}"

    @property
    def _remedy(self) -> str:
        return (
            f"choose another machine or region, or ask for more of {self._metric} at {self._link}"
        )

    @property
    def _link(self) -> str:
        return f"{CONSOLE}/iam-admin/quotas?project={self._about.asked.project}"

    def _trials(self) -> str:
        trials = self._about.asked.trials_at_once
        return f" ({trials} trials at once)" if trials > 1 else ""


def _of_machine(pool: PoolRequest, catalogue: Catalogue) -> Iterator[tuple[str, int]]:
    """Yield what one machine takes, by the ends of the metrics' names."""
    kind = catalogue.machines.get(pool.machine)
    tpu = kind.tpu if kind else None
    if tpu and pool.topology:
        yield _tpu(tpu), chips(pool.topology)
    elif pool.accelerator and pool.accelerator.startswith("TPU_"):
        name = offered_as(kind, pool.accelerator, pool.accelerator_count) or pool.accelerator
        yield _tpu(name), pool.accelerator_count
    else:
        if pool.accelerator:
            yield _gpus(pool.accelerator), pool.accelerator_count
        if kind and kind.cpus:
            yield _cpus(kind.family), kind.cpus


def _tpu(name: str) -> str:
    return _TPUS.get(name, name.lower())


def _gpus(accelerator: str) -> str:
    name = accelerator.lower().removeprefix("nvidia_").removeprefix("tesla_")
    return f"nvidia_{_SHORT.get(name, name)}_gpus"


def _cpus(family: str) -> str:
    name = family.lower().partition("_")[0]  # A3_MEGA's is A3's
    return "cpus" if name in _SHARING else f"{name}_cpus"


def _is_inferred(metric: str) -> bool:
    """Whether the name of a quota is only likely: that of a family's preemptible CPUs."""
    name = metric.removeprefix(PREFIX)
    return name.startswith(_OF_PREEMPTIBLE) and name.endswith("_cpus") and name != _KNOWN_CPUS


def _used(about: About) -> Counter[str]:
    """Return what the jobs that run or wait in the region take of each quota.

    A trial of a tuned job is a job of its own, too, and is counted with the tuned one.
    """
    jobs = {kind: list(_jobs(about, kind)) for kind in vertex.SPECS}
    tuned = jobs["hyperparameterTuningJobs"]
    trials = {trial.get("customJob") for job in tuned for trial in job.get("trials") or []}
    found: Counter[str] = Counter()
    for kind, listed in jobs.items():
        for job in listed:
            if job.get("name") not in trials:
                found += _of_job(job.get(vertex.SPECS[kind]) or {}, about.catalogue, _at_once(job))
    return found


def _jobs(about: About, kind: str) -> Iterator[dict[str, Any]]:
    region = about.asked.region
    path = f"projects/{about.project}/locations/{region}/{kind}"
    params: dict[str, str | int] = {"filter": _HOLDING, "pageSize": 100}
    return about.pages("aiplatform", path, kind, params, region=region)


def _at_once(job: Mapping[str, Any]) -> int:
    return max(1, int(job.get("parallelTrialCount") or 1))


def _is_on_persistent(spec: Mapping[str, Any]) -> bool:
    """Whether a job runs on machines that are there already, whose quota was taken with them."""
    return bool(spec.get("persistentResourceId"))


def _of_job(spec: Mapping[str, Any], catalogue: Catalogue, times: int) -> Counter[str]:
    if _is_on_persistent(spec):
        return Counter()
    is_preemptible = (spec.get("scheduling") or {}).get("strategy") in _PREEMPTIBLE
    pools = pools_of(spec.get("workerPoolSpecs") or [])
    taken = demand(pools, catalogue, is_preemptible=is_preemptible)
    return Counter({metric: amount * times for metric, amount in taken.items()})
