"""Figures of a comparison: medians over the rounds, speed-up and scaling efficiency."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import TYPE_CHECKING

from distlaunch.summary import PARTS, Summary, Timing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlaunch.local.compare.variants import Variant


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run of a variant."""

    round: int
    seconds: float  # of the whole run, with its start
    examples_per_second: float
    timing: Timing | None = None  # None where the program measures none
    gradient_bytes: float | None = None
    global_batch: float | None = None
    epochs: int | None = None
    input_options: Sequence[str] | None = None  # of reading; None for the user's own data set


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a variant has no more runs."""

    text: str
    log: str


@dataclass(frozen=True, slots=True)
class VariantFigures:
    """What was measured of a variant."""

    variant: Variant
    runs: tuple[Measurement, ...] = ()
    cores: int = 1  # of all workers
    shares_cores: bool = False  # whether there are more workers than cores
    failure: Failed | None = None
    # Median speed divided by that of the reference: the variant with the fewest workers and the
    # same global batch; of that, and of fit(), the reference is fit(). Where only batches differ,
    # it is the first variant.
    speedup: float | None = None
    # The speed-up divided by the ratio of workers; None for equally many, and for one worker on the
    # cores of several.
    efficiency: float | None = None

    @property
    def speed(self) -> float:
        """Median examples/s; there has to be a run."""
        return median(run.examples_per_second for run in self.runs)

    @property
    def fastest(self) -> float:
        """Examples/s of the fastest run."""
        return max(run.examples_per_second for run in self.runs)

    @property
    def slowest(self) -> float:
        """Examples/s of the slowest run."""
        return min(run.examples_per_second for run in self.runs)

    @property
    def global_batch(self) -> float | None:
        """Rows of a step, as the runs report it."""
        return next((run.global_batch for run in self.runs if run.global_batch), None)

    @property
    def input_options(self) -> Sequence[str] | None:
        """The options of reading that have an effect, None if the user's data set has its own."""
        return self.runs[0].input_options

    @property
    def step_seconds(self) -> float | None:
        """Median seconds of a step, from the parts or from speed and batch."""
        timing = self.timing
        if timing is not None:
            return timing.total
        return self.global_batch / self.speed if self.global_batch else None

    @property
    def timing(self) -> Timing | None:
        """The timing of all runs: medians of the parts, mean shares of the slowest tasks."""
        timings = [run.timing for run in self.runs if run.timing]
        if not timings:
            return None
        names = dict.fromkeys(name for timing in timings for name in timing.slowest)
        slowest = {name: fmean(t.slowest.get(name, 0.0) for t in timings) for name in names}
        parts = {name: median(getattr(t, name) for t in timings) for name in ("total", *PARTS)}
        return Timing(**parts, slowest=slowest)


def measurement(summary: Summary, round_: int, seconds: float) -> Measurement | None:
    """Return the figures of a run; None if it has no speed."""
    speed = summary.examples_per_second
    if not speed or speed <= 0:
        return None
    return Measurement(
        round_,
        seconds,
        speed,
        summary.timing,
        summary.gradient_bytes,
        summary.global_batch,
        len(summary.epochs),
        summary.input_options,
    )


def with_ratios(all_figures: Sequence[VariantFigures]) -> list[VariantFigures]:
    """Return the figures with speed-up and efficiency."""
    measured = [each for each in all_figures if each.runs]
    return [_with_ratios(each, measured) if each.runs else each for each in all_figures]


def _with_ratios(figures: VariantFigures, measured: Sequence[VariantFigures]) -> VariantFigures:
    base = reference(figures, measured)
    speedup = figures.speed / base.speed
    ratio = figures.variant.workers / base.variant.workers
    efficiency = speedup / ratio if ratio != 1 and not figures.variant.cores else None
    return replace(figures, speedup=speedup, efficiency=efficiency)


def reference(figures: VariantFigures, measured: Sequence[VariantFigures]) -> VariantFigures:
    """Return what a variant is compared with: the fewest workers with the same batch."""
    batch = figures.variant.global_batch
    equal = [each for each in measured if not each.variant.cores] or measured
    same = [each for each in equal if each.variant.global_batch == batch] or equal
    base = min(same, key=lambda each: each.variant.workers)
    return base if len(same) > 1 else equal[0]
