"""Retired accelerators → the first of their replacements that the machine takes."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

from distlaunch.job.machine_catalogue import bundled

if TYPE_CHECKING:
    from distlaunch.job.model import Job, Machine, Pool


def replacements(accelerator: str, count: int, machine_type: str) -> tuple[str, ...]:
    """Return the replacements of a retired accelerator that a machine takes, the closest first."""
    catalogue = bundled()
    names = catalogue.retired_accelerators[accelerator].replacements
    machine = catalogue.machines.get(machine_type)
    fitting = tuple(name for name in names if machine and machine.takes(name, count))
    return fitting or names


def replace_accelerators(job: Job) -> tuple[Job, tuple[str, ...]]:
    """Return a job without retired accelerators, and a line for each pool that was changed."""
    notes = []

    def replace_in(pool: Pool) -> Pool:
        machine = pool.machine
        substitute = _substitute(machine)
        if substitute is None:
            return pool
        notes.append(
            f"replaced {machine.accelerator_count} {machine.accelerator} on {machine.type}, which "
            f"Google withdrew, by {machine.accelerator_count} {substitute} (--replace-retired)"
        )
        return replace(pool, machine=replace(machine, accelerator=substitute))

    changed = replace(job, cluster=job.cluster.map_pools(replace_in))
    return changed, tuple(dict.fromkeys(notes))


def _substitute(machine: Machine) -> str | None:
    accelerator = machine.accelerator
    today = dt.datetime.now(dt.timezone.utc).date()
    if accelerator is None or not bundled().is_retired(accelerator, today):
        return None
    return next(iter(replacements(accelerator, machine.accelerator_count, machine.type)), None)
