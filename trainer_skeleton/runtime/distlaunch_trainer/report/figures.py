"""The figures of a task, reported every minute of its training, and whether its GPUs are idle.

A thread measures, so that no step waits for ``nvidia-smi``.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from statistics import fmean
from typing import NamedTuple

from distlaunch_trainer.task import messages
from distlaunch_trainer.task.events import append_event

from .utilization import Utilization, measure_gpus

STOP_IF = "DISTLAUNCH_STOP_IF"
"""The variable with ``gpu_below``, a share, and ``for``, in seconds, as JSON."""
_INTERVAL = "DISTLAUNCH_FIGURES_SECONDS"  # the variable for tests
_SECONDS = 60.0  # between two reports
_SAMPLES = 6  # whose means a report has: nvidia-smi sees less than the last second
_DIGITS = 4  # after the decimal point

PLAN = ("epochs", "steps_per_epoch")
"""The facts of a run that its figures have, for how much is left."""

Shares = Callable[[float], dict[str, float]]
"""Returns the shares of input, compute and exchange in the steps since a time (1970)."""


class IdleLimit(NamedTuple):
    """GPUs are idle whose use is below a share for some seconds."""

    share: float
    seconds: float

    def __str__(self) -> str:
        for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
            if self.seconds >= size and self.seconds % size == 0:
                return f"GPU use below {100 * self.share:g} % for {self.seconds / size:g} {unit}"
        return f"GPU use below {100 * self.share:g} % for {self.seconds:g} s"


class IdleWatch:
    """Judges by the mean use of a task's GPUs in each interval of its training."""

    def __init__(self, limit: IdleLimit) -> None:
        self._limit = limit
        self._below = 0.0  # seconds of intervals in a row
        self.is_idle: bool | None = None  # None until there is a measurement

    def add(self, share: float | None, seconds: float) -> None:
        """Take the mean of an interval; one without a measurement is left out."""
        if share is not None:
            self._below = self._below + seconds if share < self._limit.share else 0.0
            self.is_idle = self._below >= self._limit.seconds


class _Progress(NamedTuple):
    """How far the training is, with the examples of all tasks since its start."""

    step: int
    epoch: int
    examples: int


class Figures:
    """Reports a task's figures while it trains: an event, or in the cloud a line of the log."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._interval = float(environ.get(_INTERVAL) or _SECONDS)
        stop_if = json.loads(environ.get(STOP_IF) or "null")
        self.limit = stop_if and IdleLimit(float(stop_if["gpu_below"]), float(stop_if["for"]))
        self._idle = IdleWatch(self.limit) if self.limit else None
        self._utilization = Utilization()
        self.plan: Mapping[str, int] = {}  # of `PLAN`, what is known
        self._shares: Shares | None = None
        self._progress: _Progress | None = None  # None before the first step
        self._is_training = False

    @property
    def is_idle(self) -> bool | None:
        """Whether this task's GPUs were idle for so long that the run is to stop.

        None if no limit is set, or nothing was measured.
        """
        return self._idle and self._idle.is_idle

    @contextmanager
    def training(self, shares: Shares | None = None) -> Iterator[None]:
        """Report in here, from the first step on; a model that a callback trains is included."""
        outer, self._shares = (self._is_training, self._shares), shares
        ended = threading.Event()
        if not self._is_training:
            self._progress, self._is_training = None, True
            threading.Thread(target=self._run, args=[ended], name="figures", daemon=True).start()
        try:
            yield
        finally:
            ended.set()
            self._is_training, self._shares = outer

    def progress(self, step: int, epoch: int, examples: int) -> None:
        """Take note of steps that have ended, up to ``step``, and of their examples."""
        before = self._progress.examples if self._progress else 0
        self._progress = _Progress(step, epoch, before + examples)

    def _run(self, ended: threading.Event) -> None:
        pause = self._interval / _SAMPLES
        while self._progress is None:
            if ended.wait(pause):
                return
        has_gpus = "gpu" in self._measure()  # from here on
        if self._idle and not has_gpus and int(os.environ.get("DISTLAUNCH_EXPECTED_GPUS") or 0):
            messages.warning("stop_if: nvidia-smi does not report the use of this task's GPUs")
        while True:
            began, start, before, samples = time.time(), time.monotonic(), self._progress, []
            for _ in range(_SAMPLES):
                if ended.wait(pause):
                    return
                samples.append(self._measure())
            seconds = time.monotonic() - start
            use = _means(samples)
            if self._idle:
                self._idle.add(use.get("gpu"), seconds)
            now, shares = self._progress or before, self._shares
            parts = shares(began) if shares else {}
            if now.examples:
                speed = (now.examples - before.examples) / seconds
                parts = {"examples_per_second": speed, **parts}
            rounded = {name: round(value, _DIGITS) for name, value in (parts | use).items()}
            figures = {"step": now.step, "epoch": now.epoch, **self.plan, **rounded}
            with suppress(OSError):  # a full disk; what trains reports it
                append_event("figures", figures)
                messages.figures(figures)

    def _measure(self) -> dict[str, float]:
        return self._utilization.measure() | measure_gpus()


def _means(samples: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each value over the samples that have it."""
    values: dict[str, list[float]] = {}
    for sample in samples:
        for name, value in sample.items():
            values.setdefault(name, []).append(value)
    return {name: fmean(each) for name, each in values.items()}
