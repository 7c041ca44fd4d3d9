"""What the trainer will do with its data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.text import plural

if TYPE_CHECKING:
    from distlaunch.checks.data.sharding import ShardPlan


@dataclass(frozen=True, slots=True)
class DataFacts:
    """The data and their plan.

    Parameters
    ----------
    files
        How many files the container has; None where there are none or they are unknown.
    requested_steps
        Steps per epoch that the job sets.
    unknown
        Why files and examples are unknown, empty where they are known.
    """

    plan: ShardPlan
    files: int | None = None
    requested_steps: int | None = None
    unknown: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data; ``is_all`` is kept for scripts that read it."""
        plan = self.plan
        return asdict(plan) | {
            "files": self.files,
            "is_all": True,
            "steps_per_epoch": self.requested_steps or plan.steps,
            "rows": plan.rows,
            "last_rows": None if self.requested_steps else plan.last_rows,
            "unknown": self.unknown,
        }

    def lines(self) -> tuple[str, ...]:
        """Return the lines of the plan that `check` prints."""
        return tuple(filter(None, (self._examples_line(), self._steps_line())))

    def _examples_line(self) -> str:
        if self.plan.examples is None:
            return f"unknown (run 'distlaunch check --run' or 'distlaunch local'): {self.unknown}"
        files = f" in {plural(self.files, 'file')}" if self.files else ""
        return f"{plural(self.plan.examples, 'example')}{files}"

    def _steps_line(self) -> str:
        plan = self.plan
        if not plan.global_batch or not plan.rows:
            return ""
        text = f"{plural(plan.global_batch, 'row')} a step"
        if plan.replicas > 1:
            share = " or ".join(f"{rows:,}" for rows in sorted(set(plan.rows)))
            text += f", {share} on each of {plan.replicas:,} replicas"
        steps = self.requested_steps or plan.steps
        if steps:
            text += f"; {plural(steps, 'step')} an epoch"
        is_smaller = plan.last_rows and plan.last_rows != plan.global_batch
        if is_smaller and not self.requested_steps and steps and steps > 1:
            text += f", the last of {plan.last_rows:,}"
        return text
