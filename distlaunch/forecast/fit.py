"""What earlier runs tell about the steps of another cluster: measured, documented or assumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.errors import DistlaunchError
from distlaunch.forecast.measured import LOCAL
from distlaunch.forecast.model import Exchange, Range, Step, fit_exchange, fit_line, sharing
from distlaunch.job.egress import egress_gbps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from distlaunch.forecast.measured import MeasuredRun
    from distlaunch.job.model import Machine

_BYTES_PER_GBIT = 1e9 / 8
# Assumptions, each with its least and most.
_CORE_EXPONENT = Range(0.5, 0.8, 1.0)  # speed of a task by its number of cores
_VCPU = Range(1.0, 1.4, 2.0)  # time on a vCPU, half a core, by that on a core here
_EGRESS_SHARE = Range(1.0, 0.3, 0.1)  # of the documented limit that is reached
_LATENCY = Range(0.0001, 0.0004, 0.002)  # of a message, in seconds
_LOCAL_BYTES = Range(4e9, 1e9, 3e8)  # bytes per second between processes
_SPREAD = Range(0.0, 0.03, 0.15)  # of a task's compute
_OVERLAP = Range(10.0, 1.0, 1.0)  # of an exchange that was not measured
_FITTED = 0.2  # how far a fitted exchange may be off
_SHARED = 0.15  # how far a step may be off where tasks share cores


@dataclass(frozen=True, slots=True)
class Target:
    """A machine of each task, and its cores; the type `LOCAL` is this machine for all tasks."""

    machine: Machine
    cores: int

    @property
    def is_local(self) -> bool:
        """Whether all tasks run on this machine."""
        return self.machine.type == LOCAL

    def describe(self) -> str:
        """Return it in words."""
        machine = self.machine
        gpus = f" + {machine.accelerator_count} {machine.accelerator}"
        return f"{machine.type}{gpus if machine.accelerator else ''}"


@dataclass(frozen=True, slots=True)
class StepForecast:
    """The seconds of a step, and where each part comes from."""

    seconds: Range
    sources: dict[str, str]


def forecast_step(
    runs: Sequence[MeasuredRun],
    target: Target,
    tasks: int,
    *,
    batch: float,
    has_servers: bool = False,
) -> StepForecast:
    """Return the time of a step.

    Parameters
    ----------
    runs
        The first is of the model in question; others with the same bytes of gradients are taken
        for runs of it, and the rest only tell how fast tasks exchange bytes.
    target
        The machine.
    tasks
        The chief and the workers.
    batch
        Rows of a task.
    has_servers
        Whether gradients are summed by Reduction Server.

    Raises
    ------
    DistlaunchError
        If the runs do not tell it; its text names a run that would.
    """
    first = runs[0]
    own = [run for run in runs if run.gradient_bytes == first.gradient_bytes]
    cores = max(1, target.cores // tasks) if target.is_local else target.cores
    compute, computed = _compute(own, target, cores, batch)
    sources = {"compute": computed}
    spread, exchange, overlap = Range(0, 0, 0), [Exchange(0, 0)] * 3, Range(1, 1, 1)
    if tasks > 1:
        spread, sources["wait"] = _spread(own, target)
        exchange, overlap, sources["exchange"] = _exchange(runs, target)
    share = sharing(tasks, target.cores, 1) if target.is_local else 1.0
    steps = [
        Step(*values).seconds(
            tasks, first.gradient_bytes or 0.0, sharing=share, has_servers=has_servers
        )
        for values in zip(
            compute,
            exchange,
            (c * s for c, s in zip(compute, spread, strict=True)),
            overlap,
            strict=True,
        )
    ]
    noise = max([run.noise for run in own] + ([_SHARED] if share > 1 else []))
    if share > 1:
        sources["sharing"] = (
            f"{tasks} tasks share {target.cores} cores: all CPU time over the cores"
        )
    low, mid, high = sorted(steps)
    return StepForecast(Range(low * (1 - noise), mid, high * (1 + noise)), sources)


def _compute(
    runs: Sequence[MeasuredRun], target: Target, cores: float, batch: float
) -> tuple[Range, str]:
    """Return the time that a task computes on the target, for a number of rows."""
    known = [run for run in runs if _has_same_devices(run, target)]
    if not known:
        raise DistlaunchError(_missing_run(target))
    exact = [
        run for run in known if run.machine == target.machine and (run.cores == cores or run.gpus)
    ]
    used = exact or known
    source = f"measured ({', '.join(run.name for run in used)})"
    scales = {run.name: Range(1, 1, 1) for run in used}
    if not exact:
        scales = {run.name: _scale(run, target, cores) for run in used}
        on = "this machine" if used[0].is_local else used[0].machine.type
        source += f", scaled from {used[0].cores:g} to {cores:g} cores, from {on} (assumed)"
    sizes = {run.batch for run in used}
    fits = []
    for n in range(3):
        points = [(run.batch, run.compute * scales[run.name][n]) for run in used]
        if len(sizes) > 1:
            intercept, slope = fit_line(points)
            fits.append(intercept + slope * batch)
        else:
            fits.append(sum(seconds for _, seconds in points) / len(points))
    if len(sizes) == 1 and batch not in sizes:
        ratio = batch / used[0].batch
        fits = [fits[0] * min(1, ratio), fits[1] * ratio, fits[2] * max(1, ratio)]
        source += f", proportional to rows (assumed; measured with {used[0].batch:g})"
    return Range(*fits), source


def _has_same_devices(run: MeasuredRun, target: Target) -> bool:
    if not target.machine.accelerator:
        return not run.gpus and not run.machine.accelerator
    if run.machine.accelerator:
        return (run.machine.accelerator, run.machine.accelerator_count) == (
            target.machine.accelerator,
            target.machine.accelerator_count,
        )
    model = target.machine.accelerator.rpartition("_")[2].removesuffix("GB")
    named = [gpu for gpu in run.gpus if model in gpu.upper().replace("-", " ").split()]
    return len(named) == len(run.gpus) == target.machine.accelerator_count


def _missing_run(target: Target) -> str:
    machine = target.machine
    if not machine.accelerator:
        return (
            f"{target.describe()}: all runs are of GPUs, which do not tell the speed of CPUs; run "
            "'distlaunch local --workers 1' on a CPU, and pass that run"
        )
    return (
        f"{target.describe()}: no run tells the speed of {machine.accelerator_count} "
        f"{machine.accelerator} per task; submit a job of one worker with a few hundred steps: "
        f"distlaunch submit --set cluster.chief.machine={machine.type} "
        f"--set cluster.chief.accelerator.type={machine.accelerator} "
        f"--set cluster.chief.accelerator.count={machine.accelerator_count} "
        "--set cluster.workers.count=0, and pass its id"
    )


def _scale(run: MeasuredRun, target: Target, cores: float) -> Range:
    """Return how many times longer than in a run a task takes on other cores."""
    ratio = run.cores / cores
    times = sorted(ratio**exponent for exponent in _CORE_EXPONENT)
    vcpu = _VCPU if run.is_local and not target.is_local else Range(1, 1, 1)
    return Range(*(time * factor for time, factor in zip(times, vcpu, strict=True)))


def _spread(runs: Sequence[MeasuredRun], target: Target) -> tuple[Range, str]:
    several = _on_same_network(runs, target)
    if not several:
        return _SPREAD, "assumed: tasks differ by 0-15 %"
    values = [run.spread for run in several]
    mean = sum(values) / len(values)
    return Range(min(values), mean, max(values)), f"measured ({_names(several)})"


def _exchange(runs: Sequence[MeasuredRun], target: Target) -> tuple[list[Exchange], Range, str]:
    """Return the least, expected and most time of an exchange, its overlap, and its source."""
    measured = _on_same_network(runs, target)
    sized = [run for run in measured if run.gradient_bytes and run.exchange]
    points = [(run.tasks, run.gradient_bytes or 0.0, run.exchange) for run in sized]
    if len({point[:2] for point in points}) > 1:
        fitted = fit_exchange(points)
        exchanges = [_times(fitted, factor) for factor in (1 - _FITTED, 1, 1 + _FITTED)]
        return exchanges, Range(1, 1, 1), f"measured, fitted ({_names(sized)})"
    if measured:  # of one size, or an unknown one: by bandwidth, by latency, or half by each
        run = measured[0]
        seconds = sum(each.exchange for each in measured) / len(measured)
        latency = Exchange(seconds / (2 * (run.tasks - 1)), 0.0)
        size = run.gradient_bytes
        bandwidth = Exchange(0.0, latency.latency * run.tasks / size) if size else latency
        half = Exchange(latency.latency / 2, bandwidth.per_byte / 2) if size else latency
        why = "by latency to bandwidth; another number of tasks would tell"
        return [bandwidth, half, latency], Range(1, 1, 1), f"measured ({_names(measured)}), {why}"
    if runs[0].gradient_bytes is None:
        raise DistlaunchError(
            f"{target.describe()}: the model exchanges only the rows of a batch (a trained "
            "Embedding), so the time depends on the data; pass a run with 2 workers there"
        )
    if target.is_local:
        speeds, source = _LOCAL_BYTES, "assumed: 0.3-4 GB/s between processes"
    else:
        gbps = egress_gbps(target.machine)
        if gbps is None:
            raise DistlaunchError(
                f"{target.describe()}: no documented egress limit; pass a run with 2 workers there"
            )
        speeds = Range(*(gbps * _BYTES_PER_GBIT * share for share in _EGRESS_SHARE))
        source = f"documented limit of {gbps} Gbit/s, of which 10-100 % are reached (assumed)"
    exchanges = [Exchange(a, 1 / speed) for a, speed in zip(_LATENCY, speeds, strict=True)]
    return exchanges, _OVERLAP, source


def _times(exchange: Exchange, factor: float) -> Exchange:
    return Exchange(exchange.latency * factor, exchange.per_byte * factor)


def _on_same_network(runs: Sequence[MeasuredRun], target: Target) -> list[MeasuredRun]:
    is_like: Callable[[MeasuredRun], bool] = lambda run: run.machine == target.machine  # noqa: E731
    return [run for run in runs if run.tasks > 1 and is_like(run)]


def _names(runs: Sequence[MeasuredRun]) -> str:
    return ", ".join(run.name for run in runs)
