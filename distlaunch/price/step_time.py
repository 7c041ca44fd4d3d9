"""The time of a training step on a cluster, and what earlier runs measured: pure functions.

Times are in seconds; those of other clusters are measured, documented or assumed.

The step is that of Pollux (Qiao et al., OSDI 2021; ``goodput.py`` of petuum/adaptdl): compute and
exchange, which overlap by an exponent. A ring all-reduce sends ``2 (n - 1) / n`` of the gradients'
bytes over each task's connection (``doc/PERFORMANCE.md`` of NVIDIA/nccl-tests) in ``2 (n - 1)``
messages. Each task waits for the slowest one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist, median
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from distlaunch.errors import DistlaunchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from distlaunch.job.model import Machine

T = TypeVar("T")

LOCAL = "local"
"""In place of a machine type: this machine, with all tasks."""

_BYTES_PER_GBIT = 1e9 / 8
_SINGULAR = 1e-9  # of the product of the diagonal


class Range(NamedTuple):
    """An expected value between the least and the most that is likely."""

    low: float
    mid: float
    high: float


_ONE = Range(1, 1, 1)
# Assumptions: the best, the expected and the worst case.
_CORE_EXPONENT = Range(0.5, 0.8, 1.0)  # speed of a task by its number of cores
_VCPU = Range(1.0, 1.4, 2.0)  # time on a vCPU, half a core, by that on a core here
_OTHER_HOST = Range(0.8, 1.0, 1.25)  # time on the same GPUs in another machine
_EGRESS_SHARE = Range(1.0, 0.3, 0.1)  # of the documented limit that is reached
_LATENCY = Range(0.0001, 0.0004, 0.002)  # seconds of a message
_LOCAL_SPEED = Range(4e9, 1e9, 3e8)  # bytes per second between processes
_SPREAD = Range(0.0, 0.03, 0.15)  # of a task's compute
_OVERLAP = Range(10.0, 1.0, 1.0)  # of an exchange that was not measured
_FITTED = Range(0.8, 1.0, 1.2)  # of a fitted exchange
_WAKING = Range(0.0, 0.0006, 0.002)  # seconds until a task gets a core for its next message


@dataclass(frozen=True, slots=True)
class Exchange:
    """An all-reduce between tasks: the latency of a message, and seconds per byte sent."""

    latency: float
    per_byte: float

    def ring(self, tasks: int, size: float) -> float:
        """Return the time of a ring all-reduce of `size` bytes."""
        return messages(tasks) * (self.latency + self.per_byte * size / tasks)

    def reduction_server(self, tasks: int, size: float) -> float:
        """Return the time with Reduction Server, to which each task sends its bytes once."""
        return 2 * self.latency + self.per_byte * size if tasks > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Target:
    """A machine of each task, its cores and documented egress limit in Gbit/s, if there is one.

    The type `LOCAL` is this machine for all tasks.
    """

    machine: Machine
    cores: int
    egress: int | None = None

    @property
    def is_local(self) -> bool:
        """Whether all tasks run on this machine."""
        return self.machine.type == LOCAL

    def __str__(self) -> str:
        machine = self.machine
        gpus = f" + {machine.accelerator_count} {machine.accelerator}"
        return f"{machine.type}{gpus if machine.accelerator else ''}"


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """The mean step of a run; times are in seconds, of tasks with their own cores."""

    name: str
    machine: Machine  # of the chief; its type may be `LOCAL`
    gpus: tuple[str, ...]  # of the chief
    cores: float  # of a task
    tasks: int  # chief and workers
    batch: float  # rows of a task
    compute: float  # input, forward pass, gradients, update and the exchange of a task's devices
    exchange: float  # between tasks
    spread: float  # standard deviation of the tasks' `compute`, as a share of it
    gradient_bytes: float | None  # of a task; None if they vary
    examples: float  # of an epoch
    epochs: int
    noise: float  # the most that epochs differ from the mean, as a share

    @property
    def is_local(self) -> bool:
        """Whether it ran on this machine."""
        return self.machine.type == LOCAL

    def at_speed(self, examples_per_second: float, target: Target, batch: float) -> MeasuredRun:
        """Return a run of the same model on one task of `target` with a known speed."""
        machine = target.machine
        return replace(
            self,
            name=f"{examples_per_second:g} examples/s, as given",
            machine=machine,
            gpus=(machine.accelerator,) * machine.accelerator_count if machine.accelerator else (),
            cores=target.cores,
            tasks=1,
            batch=batch,
            compute=batch / examples_per_second,
            exchange=0.0,
            spread=0.0,
            noise=0.0,
        )


@dataclass(frozen=True, slots=True)
class Step:
    """What the time of a step depends on.

    A task computes (input, forward pass, gradients and update) for `compute` with a standard
    deviation of `spread`. `overlap` is Pollux's exponent: 1 if the exchange follows, 10 if it is
    hidden.
    """

    compute: float
    exchange: Exchange
    spread: float = 0.0
    overlap: float = 1.0

    def seconds(self, tasks: int, size: float, *, has_servers: bool = False) -> float:
        """Return the time of a step of tasks with `size` bytes of gradients each."""
        reduce = self.exchange.reduction_server if has_servers else self.exchange.ring
        wait = self.spread * expected_maximum(tasks)
        return overlapped(self.compute + wait, reduce(tasks, size), self.overlap)


def forecast_step(
    runs: Sequence[MeasuredRun], target: Target, tasks: int, batch: float, *, has_servers: bool
) -> tuple[Range, dict[str, str]]:
    """Return the seconds of a step, and the source of each part.

    Parameters
    ----------
    runs
        The first is of the model in question; others with the same bytes of gradients are taken
        for runs of it; of the rest only the exchange is used.
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
        If the runs are not enough; its text names a run to add.
    """
    size = runs[0].gradient_bytes
    own = [run for run in runs if run.gradient_bytes == size]
    at_once = min(tasks, target.cores) if target.is_local else tasks
    compute, source = _compute(own, target, at_once, batch)
    sources, noise = {"compute": source}, [run.noise for run in own]
    spread, exchange, overlap = Range(0, 0, 0), [Exchange(0, 0)] * 3, _ONE
    if at_once > 1:
        spread, sources["wait"] = _spread(own, target)
        exchange, overlap, sources["exchange"] = _exchange(runs, target)
    steps = [
        Step(compute[n], exchange[n], compute[n] * spread[n], overlap[n]).seconds(
            at_once, size or 0.0, has_servers=has_servers
        )
        for n in range(3)
    ]
    if tasks > at_once:
        sources["sharing"] = f"{tasks} tasks take turns on {at_once} cores (assumed)"
        turns = tasks / at_once, tasks / at_once, math.ceil(tasks / at_once)
        steps = [
            step * turn + messages(tasks) * waking
            for step, turn, waking in zip(steps, turns, _WAKING, strict=True)
        ]
    low, mid, high = sorted(steps)
    return Range(low * (1 - max(noise)), mid, high * (1 + max(noise))), sources


def _compute(
    runs: Sequence[MeasuredRun], target: Target, tasks: int, batch: float
) -> tuple[Range, str]:
    """Return the time that a task with its own cores computes, for a number of rows."""
    cores = max(1, target.cores // tasks) if target.is_local else target.cores
    known = [run for run in runs if _has_same_devices(run, target.machine)]
    if not known:
        raise DistlaunchError(_missing_run(target))
    exact = [
        run for run in known if run.machine == target.machine and (run.gpus or run.cores == cores)
    ]
    most = max((run.tasks for run in exact if run.tasks <= tasks), default=0)
    if target.is_local:  # cores slow each other: they share the memory's bandwidth
        exact = [run for run in exact if run.tasks == most] or exact
    used = exact or known
    source = f"measured ({_names(used)})"
    if not exact:
        of = "this machine" if used[0].is_local else used[0].machine.type
        source += f", from {used[0].cores:g} to {cores} cores and from {of} (assumed)"
    scales = [_ONE if exact else _scale(run, target, cores) for run in used]
    sizes = {run.batch for run in used}
    times = []
    for n in range(3):
        points = [(r.batch, r.compute * scale[n]) for r, scale in zip(used, scales, strict=True)]
        if len(sizes) > 1:
            intercept, slope = fit_line(points)
            times.append(intercept + slope * batch)
        else:
            times.append(median(seconds for _, seconds in points))
    ratio = batch / used[0].batch
    if len(sizes) == 1 and ratio != 1:
        times = [times[0] * min(1, ratio), times[1] * ratio, times[2] * max(1, ratio)]
        source += f", proportional to rows (assumed; measured with {used[0].batch:g})"
    return Range(*times), source


def _has_same_devices(run: MeasuredRun, machine: Machine) -> bool:
    accelerator, count = machine.accelerator, machine.accelerator_count
    if run.machine.accelerator or accelerator is None:
        is_same = (run.machine.accelerator, run.machine.accelerator_count) == (accelerator, count)
        return is_same and bool(run.gpus) == bool(count)
    words = {word for word in accelerator.split("_") if not word.endswith("GB")}
    model = words - {"NVIDIA", "TESLA", "MEGA"}
    names = [{*gpu.upper().replace("-", " ").split()} for gpu in run.gpus]
    return len(names) == count and all(model <= name for name in names)


def _missing_run(target: Target) -> str:
    machine = target.machine
    if not machine.accelerator:
        return (
            f"{target}: the runs are of GPUs, and steps on CPUs were not measured; run "
            "'CUDA_VISIBLE_DEVICES=-1 distlaunch local --workers 1', and pass that run"
        )
    chief = "--set cluster.chief"
    return (
        f"{target}: no run measured a task with these; submit a short job of one worker "
        f"(distlaunch submit {chief}.machine={machine.type} {chief}.accelerator.type="
        f"{machine.accelerator} {chief}.accelerator.count={machine.accelerator_count} "
        "--set cluster.workers.count=0), and pass its id, or pass the speed of one such "
        "task that you know (--examples-per-second)"
    )


def _scale(run: MeasuredRun, target: Target, cores: float) -> Range:
    """Return how many times longer than in a run a task takes on other cores."""
    if run.gpus:
        return _OTHER_HOST
    times = sorted((run.cores / cores) ** exponent for exponent in _CORE_EXPONENT)
    vcpu = _VCPU if run.is_local and not target.is_local else _ONE
    return Range(*(time * factor for time, factor in zip(times, vcpu, strict=True)))


def _spread(runs: Sequence[MeasuredRun], target: Target) -> tuple[Range, str]:
    several = _with_exchange(runs, target)
    if not several:
        return _SPREAD, "assumed: the times of tasks differ by 0-15 %"
    values = [run.spread for run in several]
    return Range(min(values), median(values), max(values)), f"measured ({_names(several)})"


def _exchange(runs: Sequence[MeasuredRun], target: Target) -> tuple[list[Exchange], Range, str]:
    """Return the best, expected and worst exchange, its overlap, and its source."""
    measured = _with_exchange(runs, target)
    points = [(r.tasks, r.gradient_bytes, r.exchange) for r in measured if r.gradient_bytes]
    if len({point[:2] for point in points}) > 1:
        exchange = fit_exchange(points)
        fitted = [Exchange(exchange.latency * f, exchange.per_byte * f) for f in _FITTED]
        return fitted, _ONE, f"measured, fitted ({_names(measured)})"
    size = runs[0].gradient_bytes
    if measured:  # of one size and number of tasks
        messages = 2 * (measured[0].tasks - 1)
        latency = median(run.exchange for run in measured) / messages
        per_byte = latency * measured[0].tasks / (measured[0].gradient_bytes or size or 1)
        shares = (1, 0.5, 0) if size else (0, 0, 0)
        cases = [Exchange(latency * (1 - share), per_byte * share) for share in shares]
        why = "by bandwidth to by latency; runs of other sizes or tasks separate them"
        return cases, _ONE, f"measured ({_names(measured)}): {why}"
    if size is None:
        raise DistlaunchError(
            f"{target}: the model exchanges only the rows of a batch (a trained Embedding), so "
            "that their bytes are unknown; pass a run with 2 workers there"
        )
    if target.egress:
        speeds = Range(*(target.egress * _BYTES_PER_GBIT * share for share in _EGRESS_SHARE))
        source = (
            f"documented limit of {target.egress} Gbit/s, of which 10-100 % are reached (assumed)"
        )
    elif target.is_local:
        speeds, source = _LOCAL_SPEED, "assumed: 0.3-4 GB/s between processes"
    else:
        raise DistlaunchError(
            f"{target}: no egress limit is documented; pass a run with 2 workers there"
        )
    cases = [Exchange(wait, 1 / speed) for wait, speed in zip(_LATENCY, speeds, strict=True)]
    return cases, _OVERLAP, source


def _with_exchange(runs: Sequence[MeasuredRun], target: Target) -> list[MeasuredRun]:
    return [run for run in runs if run.exchange and run.machine == target.machine]


def _names(runs: Sequence[MeasuredRun]) -> str:
    return ", ".join(run.name for run in runs)


def messages(tasks: int) -> int:
    """Return the number of messages of a ring all-reduce that follow each other."""
    return 2 * (tasks - 1)


def overlapped(compute: float, exchange: float, overlap: float) -> float:
    """Return the time of compute and exchange that overlap by Pollux's exponent."""
    if overlap == 1 or not compute or not exchange:
        return compute + exchange
    longer, shorter = max(compute, exchange), min(compute, exchange)
    power: float = (1 + (shorter / longer) ** overlap) ** (1 / overlap)
    return longer * power


def expected_maximum(count: int) -> float:
    """Return the expected maximum of standard normal values (Blom's approximation, 1958)."""
    return 0.0 if count < 2 else NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


def pareto_front(items: Iterable[tuple[T, float, float]]) -> list[T]:
    """Return the items that no other one beats in time and money, given as (item, time, money)."""
    front: list[T] = []
    least = float("inf")
    for item, _, money in sorted(items, key=lambda each: each[1:]):
        if money < least:
            front.append(item)
            least = money
    return front


def fit_line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return intercept and slope, neither negative, with the least squared relative errors."""
    return _least_squares([(1 / y, x / y) for x, y in points])


def fit_exchange(points: Sequence[tuple[int, float, float]]) -> Exchange:
    """Return the exchange that fits ring all-reduces, given as (tasks, bytes, seconds).

    There have to be two different ones: otherwise latency and bandwidth cannot be separated.
    """
    rows = [
        (2 * (n - 1) / seconds, 2 * (n - 1) * size / n / seconds) for n, size, seconds in points
    ]
    return Exchange(*_least_squares(rows))


def _least_squares(rows: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return x and y, neither negative, of the least squared errors of ``a x + b y = 1``."""
    a, b = sum(a for a, _ in rows), sum(b for _, b in rows)
    aa, ab, bb = (sum(r[i] * r[j] for r in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    determinant = aa * bb - ab * ab
    solutions = [(a / aa, 0.0)] if aa else []
    solutions += [(0.0, b / bb)] if bb else []
    if determinant > _SINGULAR * aa * bb:
        x, y = (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant
        if x >= 0 and y >= 0:
            return x, y
    return min(solutions, key=lambda s: sum((a * s[0] + b * s[1] - 1) ** 2 for a, b in rows))
