"""AI Platform's machines (scaleTier, masterType, workerConfig, …) → current machines.

The names are those of its documentation (machine types, scale tiers, GPUs and TPUs of AI Platform
Training, 2018 to 2024); the machines are in the catalogue's ``retired`` section.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from distlaunch.errors import did_you_mean
from distlaunch.job.machine_catalogue import bundled
from distlaunch.job.model import Machine
from distlaunch.job.tasks import POOL_ROLES, PoolRole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.job.ai_platform import AiPlatformFile

_TPU = "cloud_tpu"
# The machines of each scale tier in the order of `POOL_ROLES`, by their former names.
_TIERS = {
    "BASIC": (("standard", 1),),
    "STANDARD_1": (("complex_model_s", 1), ("complex_model_s", 4), ("standard", 3)),
    "PREMIUM_1": (("complex_model_m", 1), ("complex_model_m", 19), ("large_model", 11)),
    "BASIC_GPU": (("standard_gpu", 1),),
    "BASIC_TPU": ((_TPU, 1),),
}
_PODS = {"TPU_V2_POD": "TPU_V2", "TPU_V3_POD": "TPU_V3"}  # on Vertex AI, a TPU with more cores
_MASTER = POOL_ROLES[0]
_TPU_WORKER = (POOL_ROLES[1], _TPU, 1)
_MACHINE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")  # of Compute Engine


@dataclass(frozen=True, slots=True)
class RoleConfig:
    """The machines of one role; `machine` is AI Platform's name, and `config` its ``…Config``."""

    role: PoolRole
    machine: str
    count: int
    config: Mapping[str, Any]
    tier: str | None

    @property
    def type_field(self) -> str:
        """The field with the machine, such as ``workerType``."""
        return "scaleTier" if self.tier else f"{self.role.ai_platform}Type"

    @property
    def config_field(self) -> str:
        """The field with the configuration, such as ``workerConfig``."""
        return f"{self.role.ai_platform}Config"


def role_configs(file: AiPlatformFile) -> list[RoleConfig]:
    """Return the machines of each role of the job, the master first."""
    given = file.training_input
    tier = given.get("scaleTier")
    if tier is None:
        tier = "CUSTOM" if "masterType" in given else "BASIC"
        why = "as masterType is set" if "masterType" in given else "AI Platform's default"
        file.warn("scaleTier", f"not set; using {tier}, {why}")
    if tier == "CUSTOM":
        roles = (_custom_role(role, file) for role in POOL_ROLES)
        return _without_tpu_host([config for config in roles if config], file)
    for role in POOL_ROLES:
        for name in (f"{role.ai_platform}Type", f"{role.ai_platform}Count"):
            if given.get(name):
                file.error(name, f"requires scaleTier: CUSTOM, got {tier}")
    return [
        RoleConfig(role, machine, count, given.get(f"{role.ai_platform}Config", {}), tier)
        for role, (machine, count) in zip(POOL_ROLES, _TIERS[tier], strict=False)
    ]


def _custom_role(role: PoolRole, file: AiPlatformFile) -> RoleConfig | None:
    given = file.training_input
    type_field, count_field = f"{role.ai_platform}Type", f"{role.ai_platform}Count"
    machine = given.get(type_field)
    count = 1 if role == _MASTER else given.get(count_field, 0)
    if count and not machine:
        reason = "scaleTier: CUSTOM" if role == _MASTER else f"{count_field}: {count}"
        message = f"is missing, and {reason} needs it; write one such as n1-standard-8"
        file.error(type_field, message)
    if machine and not count:
        file.warn(type_field, f"ignored, as {count_field} is not set: no {role.noun}s")
    if not machine or not count:
        return None
    return RoleConfig(role, machine, count, given.get(f"{role.ai_platform}Config", {}), None)


def _without_tpu_host(roles: list[RoleConfig], file: AiPlatformFile) -> list[RoleConfig]:
    """Move the program of a master beside a TPU to the TPU machine, which needs no host now."""
    if [(role.role, role.machine, role.count) for role in roles[1:]] != [_TPU_WORKER]:
        return roles
    master, tpu = roles
    file.warn(
        tpu.type_field,
        "the program runs on the TPU machine, without a master, as Vertex AI's TPUs are reached "
        "from there only: TPUClusterResolver(tpu='local')",
    )
    config = {**master.config, "acceleratorConfig": tpu.config.get("acceleratorConfig", {})}
    return [replace(tpu, role=_MASTER, config=config)]


def current_machine(
    role: RoleConfig, file: AiPlatformFile, *, keep_retired: bool
) -> Machine | None:
    """Return the machine that is now that of a role; None, with an error, if there is none."""
    former = bundled().retired.machines.get(role.machine)
    machine = former.replacement if former else Machine(role.machine)
    current = f"{role.role.ai_platform}Type: {machine.type}"
    name = f"{role.config_field}.acceleratorConfig"
    config = role.config.get("acceleratorConfig", {})
    accelerator = config.get("type", "ACCELERATOR_TYPE_UNSPECIFIED")
    if former and config and role.machine != _TPU:
        file.error(name, f"requires a machine type of Compute Engine; write {current}")
        return None
    if not former and not _MACHINE.fullmatch(role.machine):
        hint = did_you_mean(role.machine, bundled().retired.machines)
        message = f"expected a machine type such as n1-standard-8, got {role.machine!r}{hint}"
        file.error(role.type_field, message)
        return None
    if accelerator != "ACCELERATOR_TYPE_UNSPECIFIED":
        if not config.get("count"):
            file.error(f"{name}.count", f"expected 1 or more of {accelerator}")
            return None
        machine = Machine(machine.type, _PODS.get(accelerator, accelerator), config["count"])
    withdrawn = bundled().retired.accelerators.get(machine.accelerator or "")
    if withdrawn and not keep_retired:
        is_n1 = bundled().machine(machine.type).family == "N1"
        n1_machine = machine.type if is_n1 else "n1-standard-8"
        count = machine.accelerator_count
        choices = bundled().replacements(machine.accelerator or "", count, n1_machine)
        write = f"{name}: {{type: {choices[0]}, count: {count}}}"
        if former:
            write = f"{'scaleTier: CUSTOM and ' if role.tier else ''}{current} with {write}"
        others = "".join(f" or {other}" for other in choices[1:])
        subject = f"{role.tier or role.machine} is {_describe(machine)}; " if former else ""
        file.error(
            role.type_field if former else f"{name}.type",
            f"{subject}Google withdrew {machine.accelerator} on {withdrawn.since}; choose "
            f"{write}{others}, an L4 in distlaunch.yaml, or use --replace-retired",
        )
        return None
    if former:
        former_name = f"the {role.role.noun} of {role.tier}" if role.tier else role.machine
        number = f"{role.count} x " if role.count > 1 else ""
        why = f", as {former.why}" if former.why else ""
        file.warn(role.type_field, f"{former_name} is now {number}{_describe(machine)}{why}")
    return machine


def _describe(machine: Machine) -> str:
    """Return a machine in words: ``n1-standard-8 with 1 NVIDIA_TESLA_V100``."""
    if machine.accelerator is None:
        return machine.type
    return f"{machine.type} with {machine.accelerator_count} {machine.accelerator}"
