"""The quotas that a job takes, and how Google refuses one that is too large for them.

A machine takes of the quota of its accelerators and of the one of its family's CPUs; N1 and E2
share theirs. What is preemptible has quotas of its own: ``preemptible_cpus`` is known from a
refusal of a Spot job on N1; that the other families have ``preemptible_<family>_cpus`` is inferred
from the other names.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.service.answers import Refused
from distlaunch.emulator.service.machine_rules import accelerator_name
from distlaunch.emulator.service.rules import used_pools

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PREFIX = "aiplatform.googleapis.com/custom_model_training_"
PREEMPTIBLE = "preemptible_"

_STRATEGIES = ("SPOT", "FLEX_START", "LOW_COST")
_SHORT = {"h100_80gb": "h100", "h100_mega_80gb": "h100_mega", "h200_141gb": "h200"}
_SHARED_CPUS = ("n1", "e2")
_FAMILIES = ("n2", "n4", "c2", "m1", "a2", "a3", "a4", "a4x", "g2", "g4")
_GPUS = (
    *("t4", "p4", "p100", "v100", "l4", "a100", "a100_80gb", "h100", "h100_mega", "h200"),
    *("b200", "gb200", "rtx_pro_6000"),
)
_TPUS = {"ct5lp": "tpu_v5e", "ct6e": "tpu_v6e", "tpu7x": "tpu7x"}
_USUAL = (
    "cpus",
    *(f"{family}_cpus" for family in _FAMILIES),
    *(f"nvidia_{gpu}_gpus" for gpu in _GPUS),
    *("tpu_v2", "tpu_v3", *_TPUS.values()),
)
METRICS = (*_USUAL, *(PREEMPTIBLE + each for each in _USUAL))
"""The quota metrics of training, by what comes after `PREFIX`."""

# CPUs of a machine whose name tells its GPUs: for each of them.
_CPUS_A_GPU = {
    "a2-highgpu": 12,
    "a2-ultragpu": 12,
    "a2-megagpu": 6,
    "a3-highgpu": 26,
    "a3-megagpu": 26,
    "a3-ultragpu": 28,
    "a4-highgpu": 28,
    "a4x-highgpu": 35,
}
_SIZE = re.compile(r"(?P<kind>[a-z0-9]+-[a-z]+)-(?P<size>\d+)(?P<of>[gt]?)", re.ASCII)


def over_quota(job: Any) -> Refused:
    """Return the refusal of a CustomJob or HyperparameterTuningJob for what it takes most of."""
    spec = _spec(job)
    before = _before(spec)
    return _refused(before + _metric(pool.machine_spec) for _, pool in used_pools(spec))


def taken(job: Any) -> Counter[str]:
    """Return how much a job takes of each metric, with all of its trials at once.

    A job on a persistent resource takes nothing: the machines are there, and are counted with it.
    """
    spec = _spec(job)
    if spec.persistent_resource_id:
        return Counter()
    trials = 1 if spec is not _trial_spec(job) else max(1, job.parallel_trial_count)
    before, found = _before(spec), Counter[str]()
    for _, pool in used_pools(spec):
        for metric, amount in _amounts(pool.machine_spec):
            found[before + metric] += amount * pool.replica_count * trials
    return found


def exceeded(
    wanted: Mapping[str, int], used: Mapping[str, int], limits: Mapping[str, int]
) -> Refused | None:
    """Return the refusal of a job that wants more than is left, None where there is enough."""
    short = [
        metric
        for metric, amount in wanted.items()
        if 0 <= limits.get(metric, -1) < amount + used.get(metric, 0)
    ]
    return _refused(short) if short else None


def _refused(metrics: Iterable[str]) -> Refused:
    told = ", ".join(sorted({PREFIX + each for each in metrics}))
    return Refused(429, f"The following quota metrics exceed quota limits: {told}")


def _spec(job: Any) -> Any:
    return _trial_spec(job) or job.job_spec


def _trial_spec(job: Any) -> Any:
    return getattr(job, "trial_job_spec", None)


def _before(spec: Any) -> str:
    strategies = spec.scheduling.DESCRIPTOR.fields_by_name["strategy"].enum_type.values_by_number
    is_preemptible = strategies[spec.scheduling.strategy].name in _STRATEGIES
    return PREEMPTIBLE if is_preemptible else ""


def _metric(machine: Any) -> str:
    """Return the first metric that a machine takes of."""
    return next((metric for metric, _ in _amounts(machine)), "cpus")


def _amounts(machine: Any) -> Iterator[tuple[str, int]]:
    """Give what a machine takes of each metric."""
    accelerator, family = accelerator_name(machine).lower(), machine.machine_type.partition("-")[0]
    if accelerator.startswith("tpu"):
        yield accelerator, machine.accelerator_count
    elif family in _TPUS:
        yield _TPUS[family], _chips(machine)
    else:
        if accelerator:
            name = accelerator.removeprefix("nvidia_").removeprefix("tesla_")
            yield f"nvidia_{_SHORT.get(name, name)}_gpus", machine.accelerator_count
        cpus = "cpus" if family in _SHARED_CPUS else f"{family}_cpus"
        yield cpus, _cores(machine.machine_type)


def _chips(machine: Any) -> int:
    """Return how many chips a TPU has, on all of its machines where it is a slice of several."""
    sides = [int(each) for each in machine.tpu_topology.split("x") if each.isdecimal()]
    return math.prod(sides) if sides else _cores(machine.machine_type)


def _cores(machine: str) -> int:
    """Return how many CPUs a machine has, or chips where it is one of TPUs."""
    found = _SIZE.fullmatch(machine)
    if found is None:
        return 0
    each = _CPUS_A_GPU.get(found["kind"], 1) if found["of"] == "g" else 1
    return int(found["size"]) * each
