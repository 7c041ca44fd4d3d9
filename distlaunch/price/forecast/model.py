"""The time of a training step on a cluster: pure functions. Times are in seconds.

The step is that of Pollux (Qiao et al., OSDI 2021; ``goodput.py`` of petuum/adaptdl): compute and
exchange, which overlap by an exponent. A ring all-reduce sends ``2 (n - 1) / n`` of the gradients'
bytes over each task's connection (``doc/PERFORMANCE.md`` of NVIDIA/nccl-tests) in ``2 (n - 1)``
messages. Each task waits for the slowest one.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from distlaunch.job.model import Machine

T = TypeVar("T")

LOCAL = "local"
"""In place of a machine type: this machine, with all tasks."""

_SINGULAR = 1e-9  # of the product of the diagonal


class Range(NamedTuple):
    """An expected value between the least and the most that is likely."""

    low: float
    mid: float
    high: float


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

    There have to be two different ones: otherwise latency and bandwidth cannot be told apart.
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
