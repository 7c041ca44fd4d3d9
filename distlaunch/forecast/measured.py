"""The steps of an earlier run, read from its record and ``summary.json``."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from distlaunch.errors import DistlaunchError
from distlaunch.forecast.model import expected_maximum, sharing
from distlaunch.job.model import Machine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.runs.view import RunView

LOCAL = "local"
"""In place of a machine type: this machine, with all tasks."""

_LEAST_NOISE = 0.05  # of a step, where its epochs show less


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """The mean step of a run; times are in seconds, of tasks that have their cores for themselves.

    Attributes
    ----------
    machine
        Of the chief; its type is `LOCAL` for a run on this machine.
    gpus
        The names of the chief's GPUs.
    cores
        Those of a task.
    tasks, replicas
        Chief and workers, and their devices.
    batch
        Rows of a task.
    compute
        Input, forward pass, gradients and update; with one task also the exchange of its devices.
    exchange
        The all-reduce between tasks.
    spread
        The standard deviation of the tasks' `compute`, as a share of it.
    gradient_bytes
        Of a task; None if they vary.
    examples, epochs
        The rows of an epoch and the number of epochs.
    noise
        How much the steps of epochs differ from the mean, as a share of it.
    """

    name: str
    machine: Machine
    gpus: tuple[str, ...]
    cores: float
    tasks: int
    replicas: int
    batch: float
    compute: float
    exchange: float
    spread: float
    gradient_bytes: float | None
    examples: float
    epochs: int
    noise: float

    @property
    def is_local(self) -> bool:
        """Whether it ran on this machine."""
        return self.machine.type == LOCAL


def measured_run(view: RunView) -> MeasuredRun:
    """Return the steps of a run or job; DistlaunchError is raised if they were not measured."""
    summary = view.summary
    if summary is None:
        raise DistlaunchError(f"{view.id}: no summary.json; the run has not ended, or it failed")
    timing = summary.get("timing")
    if not timing or not timing.get("total"):
        raise DistlaunchError(
            f"{view.id}: the time of its steps was not measured (an older trainer, parameter "
            "servers, a TPU or a fit script); run the trainer again with 'distlaunch local'"
        )
    tasks, machine = len(summary["tasks"]), summary.get("machine") or {}
    cores = float(machine.get("cpus") or 1)
    host = _cores_of_host(view.configuration) or cores
    factor = sharing(tasks, host, 1.0) if view.kind == "run" else 1.0
    base = timing["input"] + timing["compute"] + (timing["exchange"] if tasks == 1 else 0.0)
    wait = timing["wait"] / expected_maximum(tasks) if tasks > 1 else 0.0
    return MeasuredRun(
        name=view.id,
        machine=_machine(view),
        gpus=tuple(machine.get("gpus") or ()),
        cores=cores if factor == 1 else 1.0,
        tasks=tasks,
        replicas=int(summary["replicas"]),
        batch=summary["global_batch"] / tasks,
        compute=base / factor,
        exchange=timing["exchange"] / factor if tasks > 1 else 0.0,
        spread=wait / base,
        gradient_bytes=summary.get("gradient_bytes"),
        examples=summary.get("examples_per_epoch")
        or summary["steps_per_epoch"] * summary["global_batch"],
        epochs=len(summary["epochs"]),
        noise=_noise(summary),
    )


def _machine(view: RunView) -> Machine:
    if view.kind == "run":
        return Machine(LOCAL)
    pool = next(iter(view.configuration["pools"]))
    return Machine(pool["machine"], pool["accelerator"], pool["accelerator_count"])


def _cores_of_host(configuration: Mapping[str, Any]) -> int | None:
    count = str(configuration.get("machine") or "").partition(" ")[0]
    return int(count) if count.isdecimal() else None


def _noise(summary: Mapping[str, Any]) -> float:
    timings = [epoch.get("timing") or {} for epoch in summary["epochs"][1:]]
    totals: list[float] = [timing["total"] for timing in timings if timing.get("total")]
    return max([_LEAST_NOISE, *(abs(total / fmean(totals) - 1) for total in totals)])
