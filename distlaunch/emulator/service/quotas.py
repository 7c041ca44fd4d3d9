"""The quotas that a job takes, and how Google refuses one that is too large for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlaunch.emulator.service.answers import Refused
from distlaunch.emulator.service.machine_rules import accelerator_name
from distlaunch.emulator.service.rules import used_pools

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREEMPTIBLE = ("SPOT", "FLEX_START", "LOW_COST")
_SHORT = {"h100_80gb": "h100", "h100_mega_80gb": "h100_mega", "h200_141gb": "h200"}
_SHARED_CPUS = ("n1", "e2")


def over_quota(job: Any) -> Refused:
    """Return the refusal of a CustomJob or HyperparameterTuningJob for all quotas that it takes."""
    spec = job.job_spec if "job_spec" in job.DESCRIPTOR.fields_by_name else job.trial_job_spec
    metrics = ", ".join(sorted(set(_metrics(spec))))
    return Refused(429, f"The following quota metrics exceed quota limits: {metrics}")


def _metrics(spec: Any) -> Iterator[str]:
    strategies = spec.scheduling.DESCRIPTOR.fields_by_name["strategy"].enum_type.values_by_number
    is_preemptible = strategies[spec.scheduling.strategy].name in _PREEMPTIBLE
    before = "aiplatform.googleapis.com/custom_model_training_"
    for _, pool in used_pools(spec):
        rest = _metric(pool.machine_spec)
        yield before + ("preemptible_" if is_preemptible else "") + rest


def _metric(machine: Any) -> str:
    accelerator = accelerator_name(machine).lower()
    if accelerator.startswith("tpu"):
        return accelerator
    if accelerator:
        name = accelerator.removeprefix("nvidia_").removeprefix("tesla_")
        return f"nvidia_{_SHORT.get(name, name)}_gpus"
    family = machine.machine_type.partition("-")[0]
    return "cpus" if family in _SHARED_CPUS else f"{family}_cpus"
