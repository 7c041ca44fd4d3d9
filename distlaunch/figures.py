"""The figures that each task of a job reports every minute: speed, shares of a step, machine use.

They are an event, or in the cloud an entry of the log with the field ``figures``.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

from distlaunch.summary import as_number
from distlaunch.text import percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FIGURES = "figures"
"""The kind of the event, and the field of a log entry."""

_MOST_LISTED = 4  # tasks
_CURRENT = 180.0  # seconds before the newest figures in which those of other tasks are shown
_PARTS = ("input", "compute", "exchange")


class Figures:
    """The newest figures of each task of a job."""

    def __init__(self, by_task: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._by_task = dict(by_task or {})
        self._fresh: set[str] = set()  # tasks with figures that were not in a line yet

    def add(self, task: str, figures: Mapping[str, Any], of_tasks: int) -> bool:
        """Take a task's figures; return whether a line is due: when all or one again has some."""
        is_again = task in self._fresh
        self._by_task[task] = figures
        self._fresh.add(task)
        is_due = is_again or len(self._fresh) >= of_tasks
        if is_due:
            self._fresh = {task} if is_again else set()
        return is_due

    def parts(self, *, with_speed: bool = True) -> Iterator[str]:
        """Yield them in words: ``950 examples/s``, ``input 5 %, compute 95 %``, ``GPU chief …``."""
        # Each task reports the speed of all tasks, those of a tuning job of all in their trial.
        speeds = self._numbers("examples_per_second")
        of_jobs = {task.rpartition("/")[0]: speed for task, speed in speeds.items()}
        if speeds and with_speed:
            texts = (f"{trial} {speed:,.0f}".lstrip() for trial, speed in of_jobs.items())
            yield f"{', '.join(texts)} examples/s"
        means = {part: self._numbers(part).values() for part in _PARTS}
        shares = [f"{part} {percent(fmean(each))}" for part, each in means.items() if each]
        if shares:
            yield ", ".join(shares)
        use, memory = self._numbers("gpu"), self._numbers("gpu_memory_gib")
        if use:
            yield f"GPU {_listed(use, memory, percent)}"
        elif cores := self._numbers("cpu_cores"):
            memory = self._numbers("memory_gib")
            yield f"CPU {_listed(cores, memory, lambda count: f'{count:.1f} cores')}"

    def _numbers(self, name: str) -> dict[str, float]:
        """Return a figure of each task that has reported lately: trials and attempts end."""
        times = {task: as_number(each.get("time")) for task, each in self._by_task.items()}
        newest = max((moment or 0.0 for moment in times.values()), default=0.0)
        return {
            task: value
            for task, each in sorted(self._by_task.items())
            if (value := as_number(each.get(name))) is not None
            if (times[task] or newest) >= newest - _CURRENT
        }


def _listed(use: Mapping[str, float], memory: Mapping[str, float], text: Any) -> str:
    """Return each task's use and memory, of many tasks the mean and the lowest."""
    if len(use) > _MOST_LISTED:
        lowest = min(use, key=lambda task: use[task])
        mean = text(fmean(use.values()))
        return f"of {len(use)} tasks {mean}, lowest {lowest} {text(use[lowest])}"
    sizes = {task: f" {memory[task]:.1f} GiB" if task in memory else "" for task in use}
    return ", ".join(f"{task} {text(use[task])}{sizes[task]}" for task in use)
