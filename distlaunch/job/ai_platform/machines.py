"""AI Platform's machines (scaleTier, masterType, workerConfig, …) → a cluster of current machines.

The names are those of its documentation (machine types, scale tiers, GPUs and TPUs of AI Platform
Training, 2018 to 2024); the machines are in the catalogue's ``retired`` section.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic.alias_generators import to_camel

from distlaunch.errors import did_you_mean
from distlaunch.job.ai_platform.models import ReplicaConfig
from distlaunch.job.machine_catalogue import bundled
from distlaunch.job.model import POOL_ROLES, Cluster, Machine, Pool, PoolRole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.job.ai_platform.models import AcceleratorConfig, TrainingInput
    from distlaunch.job.ai_platform.report import TranslationReport
    from distlaunch.job.model import Program

WITHDRAWN = {
    name: retired.since.isoformat() for name, retired in bundled().retired_accelerators.items()
}
"""The day on which Google withdrew each accelerator."""

CLOUD_TPU = "cloud_tpu"
TPU_MACHINE = "cloud-tpu"  # Vertex AI's machine type of a TPU
# TPUs of AI Platform and their names on Vertex AI, where a pod is one with more cores.
TPUS = {"TPU_V2": "TPU_V2", "TPU_V2_POD": "TPU_V2", "TPU_V3": "TPU_V3", "TPU_V3_POD": "TPU_V3"}
WITHDRAWN_TPUS = {"TPU_V4_POD"}

MACHINES = {name: retired.replacement for name, retired in bundled().retired_machines.items()}
SMALLEST_TPU = MACHINES[CLOUD_TPU]  # 8 cores: the default of cloud_tpu
SUBSTITUTION_NOTE = {
    name: f", as {retired.why}"
    for name, retired in bundled().retired_machines.items()
    if retired.why
}
"""Why a machine is not the same as the former one, where it is not."""
# The machines of each scale tier in the order of `POOL_ROLES`, by their names in `MACHINES`.
TIERS = {
    "BASIC": (("standard", 1),),
    "STANDARD_1": (("complex_model_s", 1), ("complex_model_s", 4), ("standard", 3)),
    "PREMIUM_1": (("complex_model_m", 1), ("complex_model_m", 19), ("large_model", 11)),
    "BASIC_GPU": (("standard_gpu", 1),),
    "BASIC_TPU": (("standard", 1), (CLOUD_TPU, 1)),
}

_MASTER = POOL_ROLES[0]
_MACHINE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")  # of Compute Engine


@dataclass(frozen=True, slots=True)
class RoleConfig:
    """The machines of one role; `machine` is AI Platform's name, `type_field` the field with it."""

    role: PoolRole
    machine: str
    count: int
    config: ReplicaConfig
    type_field: str

    @property
    def config_field(self) -> str:
        """The field with the configuration, such as ``workerConfig``."""
        return f"{to_camel(self.role.ai_platform)}Config"


def role_configs(given: TrainingInput, report: TranslationReport) -> list[RoleConfig]:
    """Return the machines of each role of the job, the master first; none if they are invalid."""
    tier = given.scale_tier
    if tier is None:
        tier = "BASIC" if given.master_type is None else "CUSTOM"
        why = "AI Platform's default" if given.master_type is None else "as masterType is set"
        report.warn("scaleTier", f"not set; using {tier}, {why}")
    if tier == "CUSTOM":
        custom = [_custom_role(given, role, report) for role in POOL_ROLES]
        roles = [each for each in custom if each]
    else:
        roles = _tier_roles(given, tier, report)
    return _without_tpu_host(roles, report)


def to_cluster(
    roles: list[RoleConfig],
    programs: Mapping[PoolRole, Program | None],
    report: TranslationReport,
    *,
    keep_retired: bool,
) -> Cluster | None:
    """Return the cluster, None if the master's machine has no equivalent."""
    pools = {
        each.role: Pool(machine, each.count, programs[each.role])
        for each in roles
        if (machine := _machine(each, report, keep_retired=keep_retired))
    }
    if _MASTER not in pools:
        return None
    if roles[0].type_field == "scaleTier":
        parts = [
            f"{'' if role == _MASTER else f'{pool.count} '}{role.noun}"
            f"{'s' if pool.count > 1 else ''} on {_describe(pool.machine)}"
            for role, pool in pools.items()
        ]
        tier = report.file.training_input.scale_tier or "BASIC"
        report.warn("scaleTier", f"{tier} is now {', '.join(parts)}")
    chief, *others = [pools.get(role) for role in POOL_ROLES]
    return Cluster(chief or pools[_MASTER], *others)


def _tier_roles(given: TrainingInput, tier: str, report: TranslationReport) -> list[RoleConfig]:
    for role in POOL_ROLES:
        for part in ("type", "count"):
            if getattr(given, f"{role.ai_platform}_{part}", None):
                name = to_camel(f"{role.ai_platform}_{part}")
                report.error(name, f"requires scaleTier: CUSTOM, got {tier}")
    return [
        RoleConfig(role, machine, count, _config(given, role), "scaleTier")
        for role, (machine, count) in zip(POOL_ROLES, TIERS[tier], strict=False)
    ]


def _config(given: TrainingInput, role: PoolRole) -> ReplicaConfig:
    config: ReplicaConfig | None = getattr(given, f"{role.ai_platform}_config")
    return config or ReplicaConfig()


def _custom_role(
    given: TrainingInput, role: PoolRole, report: TranslationReport
) -> RoleConfig | None:
    name = role.ai_platform
    type_field, count_field = to_camel(f"{name}_type"), to_camel(f"{name}_count")
    machine: str | None = getattr(given, f"{name}_type")
    count = 1 if role == _MASTER else getattr(given, f"{name}_count") or 0
    if count and not machine:
        reason = "scaleTier: CUSTOM" if role == _MASTER else f"{count_field}: {count}"
        message = f"is missing, and {reason} needs it; write one such as n1-standard-8"
        report.error(type_field, message)
    if machine and not count:
        report.warn(type_field, f"ignored, as {count_field} is not set: no {role.noun}s")
    if not machine or not count:
        return None
    return RoleConfig(role, machine, count, _config(given, role), type_field)


def _without_tpu_host(roles: list[RoleConfig], report: TranslationReport) -> list[RoleConfig]:
    """Move the master's program to the TPU machine, where a host was beside it."""
    tpu = next((each for each in roles if each.machine == CLOUD_TPU), None)
    if tpu is None:
        return roles
    master, *others = roles
    is_alone = tpu == master and not others
    has_host = others == [tpu] and tpu.role.field == "workers" and tpu.count == 1
    if not (is_alone or has_host):
        message = "Vertex AI takes one TPU machine and no other machines; leave a single cloud_tpu"
        report.error(tpu.type_field, message)
        return []
    report.warn(
        tpu.type_field,
        "the program runs on the TPU machine, without a master, as Vertex AI's TPUs are reached "
        "from there only: TPUClusterResolver(tpu='local')",
    )
    hardware = {"accelerator_config", "disk_config", "tpu_tf_version"}
    config = master.config.model_copy(update={name: getattr(tpu.config, name) for name in hardware})
    return [replace(tpu, role=_MASTER, config=config)]


def _machine(role: RoleConfig, report: TranslationReport, *, keep_retired: bool) -> Machine | None:
    if role.machine == CLOUD_TPU:
        return _tpu(role, report)
    if role.machine in MACHINES:
        return _legacy_machine(role, report, keep_retired=keep_retired)
    if _MACHINE.fullmatch(role.machine):
        return _with_accelerator(role, report, keep_retired=keep_retired)
    hint = did_you_mean(role.machine, MACHINES)
    message = f"expected a machine type such as n1-standard-8, got {role.machine!r}{hint}"
    report.error(role.type_field, message)
    return None


def _legacy_machine(
    role: RoleConfig, report: TranslationReport, *, keep_retired: bool
) -> Machine | None:
    machine = MACHINES[role.machine]
    custom = "scaleTier: CUSTOM and " if role.type_field == "scaleTier" else ""
    current = f"{custom}{to_camel(f'{role.role.ai_platform}_type')}: {machine.type}"
    name = f"{role.config_field}.acceleratorConfig"
    if role.config.accelerator_config:
        report.error(name, f"requires a machine type of Compute Engine; write {current}")
        return None
    if machine.accelerator in WITHDRAWN and not keep_retired:
        count = machine.accelerator_count
        first, *others = _choices(machine.accelerator, count, machine.type)
        known_as = "BASIC_GPU" if custom else role.machine
        report.error(
            role.type_field,
            f"{known_as} was {_describe(machine)}, which Google withdrew on "
            f"{WITHDRAWN[machine.accelerator]}; choose {current} with {name}: "
            f"{{type: {first}, count: {count}}}{''.join(f' or {other}' for other in others)}, an "
            "L4 in distlaunch.yaml, or use --replace-retired",
        )
        return None
    return _renamed(machine, role, report)


def _renamed(machine: Machine, role: RoleConfig, report: TranslationReport) -> Machine:
    """Return a machine, with a warning about its new name unless the whole tier has one."""
    if role.type_field != "scaleTier":
        why = SUBSTITUTION_NOTE.get(role.machine, "")
        report.warn(role.type_field, f"{role.machine} is now {_describe(machine)}{why}")
    return machine


def _choices(accelerator: str, count: int, machine_type: str) -> list[str]:
    """Return the replacements of a retired accelerator on an N1 machine."""
    n1_machine = machine_type if machine_type.startswith("n1-") else "n1-standard-8"
    return list(bundled().replacements(accelerator, count, n1_machine))


def _with_accelerator(
    role: RoleConfig, report: TranslationReport, *, keep_retired: bool
) -> Machine | None:
    config = role.config.accelerator_config
    accelerator = _accelerator(config)
    if config is None or accelerator is None:
        return Machine(role.machine)
    name = f"{role.config_field}.acceleratorConfig"
    if accelerator in TPUS or accelerator in WITHDRAWN_TPUS:
        report.error(f"{name}.type", f"{accelerator} requires {role.type_field}: cloud_tpu")
    elif accelerator in WITHDRAWN and not keep_retired:
        choices = _choices(accelerator, config.count or 1, role.machine)
        report.error(
            f"{name}.type",
            f"Google withdrew {accelerator} on {WITHDRAWN[accelerator]}; choose "
            f"{' or '.join(choices)}, an L4 in distlaunch.yaml, or use --replace-retired",
        )
    elif not config.count:
        report.error(f"{name}.count", f"expected 1 or more of {accelerator}")
    else:
        return Machine(role.machine, accelerator, config.count)
    return None


def _tpu(role: RoleConfig, report: TranslationReport) -> Machine | None:
    config = role.config.accelerator_config
    accelerator = _accelerator(config)
    if config is None or accelerator is None:
        return _renamed(SMALLEST_TPU, role, report)
    name = f"{role.config_field}.acceleratorConfig"
    if accelerator not in TPUS:
        choices = "TPU_V2 or TPU_V3, or a newer TPU in distlaunch.yaml"
        message = f"Vertex AI has no {accelerator} for training; choose {choices}"
        report.error(f"{name}.type", message)
        return None
    if not config.count:
        report.error(f"{name}.count", f"expected the number of {accelerator} cores, such as 8")
        return None
    return _renamed(Machine(TPU_MACHINE, TPUS[accelerator], config.count), role, report)


def _accelerator(config: AcceleratorConfig | None) -> Any:
    """Return the accelerator's name; AI Platform took 'unspecified' as none."""
    if config is None or config.type == "ACCELERATOR_TYPE_UNSPECIFIED":
        return None
    return config.type


def _describe(machine: Machine) -> str:
    """Return a machine in words: ``n1-standard-8 with 1 NVIDIA_TESLA_V100``."""
    if machine.accelerator is None:
        return machine.type
    return f"{machine.type} with {machine.accelerator_count} {machine.accelerator}"
