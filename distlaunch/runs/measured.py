"""The steps of an earlier run, read from its record and ``summary.json``."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import fields
from statistics import fmean
from typing import TYPE_CHECKING, Any

from distlaunch.errors import DistlaunchError
from distlaunch.job.model import Machine
from distlaunch.price.step_time import LOCAL, MeasuredRun, expected_maximum
from distlaunch.runs.view import local_runs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from distlaunch.runs.view import RunView
    from distlaunch.summary import Summary, Timing

_LEAST_NOISE = 0.05  # of a step, where its epochs show less


def measured_runs(project: Path) -> list[MeasuredRun]:
    """Return the steps of a project's local runs that were measured, the newest first."""
    runs = []
    for view in local_runs(project):
        with suppress(DistlaunchError):
            runs.append(measured_run(view))
    return runs


def measured_run(view: RunView) -> MeasuredRun:
    """Return the steps of a run or job; DistlaunchError is raised if they were not measured."""
    if view.summary is None:
        raise DistlaunchError(
            f"{view.id}: no summary.json: it has not ended, it failed, or its program is not the "
            "trainer; pass another run"
        )
    timing = view.facts.timing
    if timing is None:
        raise DistlaunchError(
            f"{view.id}: the time of its steps was not measured (an older trainer, parameter "
            "servers, a TPU or a fit script); run the trainer again with 'distlaunch local'"
        )
    try:
        run = _read(view, view.facts, timing)
        _check_numbers(run)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise DistlaunchError(f"{view.id}: summary.json is not the trainer's ({error})") from None
    return run


def _check_numbers(run: MeasuredRun) -> None:
    """Raise ValueError or TypeError unless all numbers of a run are finite, and not negative."""
    for field in fields(run):
        value = getattr(run, field.name)
        is_number = field.type in ("float", "int", "float | None") and value is not None
        if is_number and not (value >= 0 and float(value) < math.inf):
            raise ValueError(f"{field.name} is {value}")
    for name in ("batch", "examples", "epochs", "compute"):
        if not getattr(run, name):
            raise ValueError(f"{name} is 0")


def _read(view: RunView, summary: Summary, timing: Timing) -> MeasuredRun:
    tasks, machine, batch = len(summary.tasks), summary.machine, summary.global_batch or 0
    cores = float(machine.get("cpus") or 1)
    host = _cores_of_host(view.configuration) or cores
    factor = max(1.0, tasks / host) if view.kind == "run" else 1.0
    base = timing.input + timing.compute + (timing.exchange if tasks == 1 else 0.0)
    wait = timing.wait / expected_maximum(tasks) if tasks > 1 else 0.0
    return MeasuredRun(
        name=view.id,
        machine=_machine(view),
        gpus=tuple(map(str, machine.get("gpus") or ())),
        cores=cores if factor == 1 else 1.0,
        tasks=tasks,
        batch=batch / tasks,
        compute=base / factor,
        exchange=timing.exchange / factor if tasks > 1 else 0.0,
        spread=wait / base if base else 0.0,
        gradient_bytes=summary.gradient_bytes,
        examples=summary.examples_per_epoch or (summary.steps_per_epoch or 0) * batch,
        epochs=len(summary.epochs),
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


def _noise(summary: Summary) -> float:
    totals = [epoch.timing.total for epoch in summary.epochs[1:] if epoch.timing]
    return max([_LEAST_NOISE, *(abs(total / fmean(totals) - 1) for total in totals)])
