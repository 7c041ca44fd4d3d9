"""scaleTier, masterType and their kin → a cluster of today's machines, and what runs on each."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pydantic.alias_generators import to_camel

from distlaunch.errors import did_you_mean
from distlaunch.job.ai_platform.machines import (
    CLOUD_TPU,
    GONE,
    MACHINES,
    SMALLEST_TPU,
    TIERS,
    TPU_MACHINE,
    TPUS,
    TPUS_GONE,
    WHY_ANOTHER,
    alternatives,
    describe,
)
from distlaunch.job.ai_platform.models import ReplicaConfig
from distlaunch.job.model import Cluster, Machine, Pool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.job.ai_platform.models import AcceleratorConfig, TrainingInput
    from distlaunch.job.ai_platform.report import Ledger
    from distlaunch.job.model import Program

ROLES = ("master", "worker", "parameter_server", "evaluator")  # in the order of Google's pools
_NAMES = {
    "master": "chief",
    "worker": "worker",
    "parameter_server": "parameter server",
    "evaluator": "evaluator",
}
_MACHINE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")  # of Compute Engine


@dataclass(frozen=True, slots=True)
class Replicas:
    """The machines that one role of a job is given.

    Parameters
    ----------
    role
        One of `ROLES`.
    machine
        The name of the machine, as AI Platform took it.
    said_by, said_in
        The fields with the machine's name and with its accelerators.
    """

    role: str
    machine: str
    count: int
    config: ReplicaConfig
    said_by: str
    said_in: str


def replicas(given: TrainingInput, ledger: Ledger) -> list[Replicas]:
    """Return what each role of the job is given, the master first; none where that cannot be."""
    tier = given.scale_tier or _unsaid_tier(given, ledger)
    if tier == "CUSTOM":
        custom = [_custom(given, role, ledger) for role in ROLES]
        wanted = [each for each in custom if each]
    else:
        _refuse_machines_of_a_tier(given, tier, ledger)
        wanted = _of_tier(given, tier)
    return _without_the_tpus_host(wanted, ledger)


def cluster(
    wanted: list[Replicas], programs: Mapping[str, Program | None], ledger: Ledger
) -> Cluster | None:
    """Return the cluster of today, or None where the master's machine has no equivalent.

    Parameters
    ----------
    wanted
        What each role is given.
    programs
        What runs on each role's machines, None for what the job says of all its tasks.
    """
    pools = {
        each.role: Pool(machine, each.count, programs[each.role])
        for each in wanted
        if (machine := _machine(each, ledger))
    }
    _tell_of_tier(wanted, pools, ledger)
    if "master" not in pools:
        return None
    return Cluster(
        chief=pools["master"],
        workers=pools.get("worker"),
        parameter_servers=pools.get("parameter_server"),
        evaluators=pools.get("evaluator"),
    )


def _unsaid_tier(given: TrainingInput, ledger: Ledger) -> str:
    if given.master_type is not None:
        ledger.note("scaleTier", "is not set; taken for CUSTOM, as masterType is")
        return "CUSTOM"
    ledger.note("scaleTier", "is not set; taken for BASIC, as AI Platform did")
    return "BASIC"


def _refuse_machines_of_a_tier(given: TrainingInput, tier: str, ledger: Ledger) -> None:
    for role in ROLES:
        for part in ("type", "count"):
            if getattr(given, f"{role}_{part}", None):
                name = to_camel(f"{role}_{part}")
                ledger.refuse(name, f"goes with scaleTier: CUSTOM, and not with {tier}")


def _tell_of_tier(wanted: list[Replicas], pools: Mapping[str, Pool], ledger: Ledger) -> None:
    if not pools or wanted[0].said_by != "scaleTier":
        return
    chief, *others = [
        f"{_counted(pool.count, _NAMES[role])} on {describe(pool.machine)}"
        for role, pool in pools.items()
    ]
    tier = ledger.file.training_input.scale_tier or "BASIC"
    ledger.note("scaleTier", f"{tier} is {', '.join([chief, *others])} today")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}s" if count > 1 else f"1 {noun}"


def _of_tier(given: TrainingInput, tier: str) -> list[Replicas]:
    stood_for = TIERS[tier]
    counts = {
        "master": (stood_for.master, 1),
        "worker": (stood_for.worker, stood_for.worker_count),
        "parameter_server": (stood_for.parameter_server, stood_for.parameter_server_count),
    }
    return [
        Replicas(role, machine, count, _config(given, role), "scaleTier", _config_name(role))
        for role, (machine, count) in counts.items()
        if count
    ]


def _config(given: TrainingInput, role: str) -> ReplicaConfig:
    config: ReplicaConfig | None = getattr(given, f"{role}_config")
    return config or ReplicaConfig()


def _config_name(role: str) -> str:
    return f"{to_camel(role)}Config"


def _custom(given: TrainingInput, role: str, ledger: Ledger) -> Replicas | None:
    machine: str | None = getattr(given, f"{role}_type")
    count = 1 if role == "master" else getattr(given, f"{role}_count") or 0
    name = to_camel(f"{role}_type")
    if count and not machine:
        whose = "scaleTier: CUSTOM" if role == "master" else f"{to_camel(role)}Count: {count}"
        ledger.refuse(name, f"is missing, and {whose} needs it; write one, as n1-standard-8")
        return None
    if machine and not count:
        ledger.note(name, f"there are no {_NAMES[role]}s, as {to_camel(role)}Count is not set")
    if not machine or not count:
        return None
    return Replicas(role, machine, count, _config(given, role), name, _config_name(role))


def _without_the_tpus_host(wanted: list[Replicas], ledger: Ledger) -> list[Replicas]:
    """Let the master's program run on the TPU's own machine, where there was a host beside it."""
    tpus = [each for each in wanted if each.machine == CLOUD_TPU]
    if not tpus:
        return wanted
    master, *others = wanted
    tpu = tpus[0]
    alone = tpu == master and not others
    hosted = tpu != master and others == [tpu] and tpu.role == "worker" and tpu.count == 1
    if not (alone or hosted):
        what = "Vertex AI takes one TPU machine with nothing beside it; leave a single cloud_tpu"
        ledger.refuse(tpu.said_by, what)
        return []
    ledger.note(
        tpu.said_by,
        "the program runs on the TPU's own machine, with no master beside it, as TPUs of today "
        "are reached from there alone: TPUClusterResolver(tpu='local')",
    )
    hardware = {"accelerator_config", "disk_config", "tpu_tf_version"}
    config = master.config.model_copy(update={name: getattr(tpu.config, name) for name in hardware})
    return [replace(tpu, role="master", config=config)]


def _machine(wanted: Replicas, ledger: Ledger) -> Machine | None:
    if wanted.machine == CLOUD_TPU:
        return _tpu(wanted, ledger)
    if wanted.machine in MACHINES:
        return _legacy(wanted, ledger)
    if not _MACHINE.fullmatch(wanted.machine):
        hint = did_you_mean(wanted.machine, MACHINES)
        what = f"expected a machine type, as n1-standard-8, got {wanted.machine!r}{hint}"
        ledger.refuse(wanted.said_by, what)
        return None
    return _with_accelerator(wanted, ledger)


def _legacy(wanted: Replicas, ledger: Ledger) -> Machine | None:
    machine = MACHINES[wanted.machine]
    if wanted.config.accelerator_config:
        what = f"goes with a machine type of Compute Engine; write {_instead(wanted, machine)}"
        ledger.refuse(f"{wanted.said_in}.acceleratorConfig", what)
        return None
    if machine.accelerator in GONE:
        ledger.refuse(wanted.said_by, _gone(wanted, machine))
        return None
    return _told(machine, wanted, ledger)


def _told(machine: Machine, wanted: Replicas, ledger: Ledger) -> Machine:
    """Note what a name stands for, unless the whole tier is told of."""
    why = WHY_ANOTHER.get(wanted.machine, "")
    if wanted.said_by != "scaleTier":
        ledger.note(wanted.said_by, f"{wanted.machine} is {describe(machine)} today{why}")
    return machine


def _gone(wanted: Replicas, machine: Machine) -> str:
    count = machine.accelerator_count
    first, *others = alternatives(count)
    name = "BASIC_GPU" if wanted.said_by == "scaleTier" else wanted.machine
    return (
        f"{name} was {describe(machine)}, which Google withdrew on "
        f"{GONE[machine.accelerator or '']}; choose {_instead(wanted, machine)} with "
        f"{wanted.said_in}.acceleratorConfig: {{type: {first}, count: {count}}}"
        f"{''.join(f' or {other}' for other in others)}, or an L4 in distlaunch.yaml"
    )


def _instead(wanted: Replicas, machine: Machine) -> str:
    """Return how a file says a machine by its name of today."""
    custom = "scaleTier: CUSTOM and " if wanted.said_by == "scaleTier" else ""
    return f"{custom}{to_camel(f'{wanted.role}_type')}: {machine.type}"


def _with_accelerator(wanted: Replicas, ledger: Ledger) -> Machine | None:
    config = wanted.config.accelerator_config
    kind = _kind(config)
    if config is None or kind is None:
        return Machine(wanted.machine)
    name = f"{wanted.said_in}.acceleratorConfig"
    if kind in TPUS or kind in TPUS_GONE:
        ledger.refuse(f"{name}.type", f"{kind} goes with {wanted.said_by}: cloud_tpu")
    elif kind in GONE:
        choices = f"{' or '.join(alternatives(config.count or 1))}, or an L4 in distlaunch.yaml"
        ledger.refuse(f"{name}.type", f"Google withdrew {kind} on {GONE[kind]}; choose {choices}")
    elif not config.count:
        ledger.refuse(f"{name}.count", f"expected 1 or more of {kind}")
    else:
        return Machine(wanted.machine, kind, config.count)
    return None


def _tpu(wanted: Replicas, ledger: Ledger) -> Machine | None:
    config = wanted.config.accelerator_config
    kind = _kind(config)
    if config is None or kind is None:
        return _told(SMALLEST_TPU, wanted, ledger)
    name = f"{wanted.said_in}.acceleratorConfig"
    if kind not in TPUS:
        choices = "TPU_V2 or TPU_V3, or a newer TPU in distlaunch.yaml"
        ledger.refuse(f"{name}.type", f"Vertex AI has no {kind} for training; choose {choices}")
        return None
    if not config.count:
        ledger.refuse(f"{name}.count", f"expected the number of {kind}'s cores, as 8")
        return None
    return _told(Machine(TPU_MACHINE, TPUS[kind], config.count), wanted, ledger)


def _kind(config: AcceleratorConfig | None) -> str | None:
    """Return the type of the accelerators, None for none; so AI Platform took 'unspecified'."""
    if config is None or config.type == "ACCELERATOR_TYPE_UNSPECIFIED":
        return None
    return config.type
