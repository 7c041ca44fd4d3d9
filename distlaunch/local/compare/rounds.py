"""Runs of the variants in turn, round by round, each in a job folder of its own."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from distlaunch.errors import STOPPED_CODES
from distlaunch.events import JobFailed, Notice, TaskLines, Trained, Waiting
from distlaunch.local.compare.figures import (
    Failed,
    VariantFigures,
    measurement,
    with_ratios,
)
from distlaunch.local.compare.variants import split_batch, with_whole_machine
from distlaunch.local.host_resources import this_machine
from distlaunch.local.run_plan import plan_run
from distlaunch.local.runner import Runner
from distlaunch.paths import CHECKPOINTS, MODEL
from distlaunch.summary import Summary
from distlaunch.text import duration, plural
from distlaunch.ui.progress_view import ProgressView

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from distlaunch.events import Event
    from distlaunch.job.model import Job
    from distlaunch.local.compare.variants import Variant
    from distlaunch.local.run_plan import RunOptions
    from distlaunch.ui.console import Console

_UNUSED = (CHECKPOINTS, MODEL)  # what a comparison does not need of runs


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was compared, and the figures; `is_interrupted` if rounds are missing."""

    folder: Path
    cores: int
    cores_per_worker: int
    rounds: int
    figures: tuple[VariantFigures, ...]
    is_interrupted: bool


class QuietView(ProgressView):
    """A progress line of the primary task of a run; lines of tasks are in their logs."""

    shows_lines = False

    def __init__(self, console: Console, tasks: Sequence[str], label: str) -> None:
        super().__init__(console, tasks)
        self._label = label

    def handle(self, event: Event) -> None:
        if isinstance(event, (TaskLines, Notice, JobFailed)):
            return
        if isinstance(event, Waiting):
            self._wait_for(event.text and f"{self._label} · {event.text}")
        elif not isinstance(event, Trained):
            super().handle(event)
        elif event.task == self._primary:
            self._wait_for("")
            text = self._progress.update(event.event) or "starting"
            self.console.progress(f"{self._label} · {text}")


class Rounds:
    """Runs each variant once per round: A B A B, so that a slow minute slows all of them.

    Each worker has the same number of cores in all variants: as many as there are for each where
    there are most workers, at least one.
    """

    def __init__(
        self,
        project: Path,
        job: Job | None,
        variants: Sequence[Variant],
        *,
        folder: Path,
        console: Console,
        options: RunOptions,
    ) -> None:
        self._project, self._job = project, job
        self._folder, self._console, self._options = folder, console, options
        self._cores = len(this_machine({}).cores)
        most = max(each.workers for each in variants)
        self._cores_per_worker = max(1, self._cores // most)
        used = min(self._cores, most * self._cores_per_worker)
        self._variants = with_whole_machine(variants, used)
        self._figures = {
            each.name: VariantFigures(
                each,
                cores=each.cores or min(self._cores, each.workers * self._cores_per_worker),
                shares_cores=each.workers > self._cores,
            )
            for each in self._variants
        }

    def describe(self) -> str:
        """Return a line on the variants and how the machine is shared."""
        names = ", ".join(each.name for each in self._variants)
        shares = f"{self._cores_per_worker} of {plural(self._cores, 'core')} per worker"
        over = [name for name, each in self._figures.items() if each.shares_cores]
        if over:
            shares += (
                f"; {', '.join(over)} share them all, which is slower than machines of their own"
            )
        return f"comparing {names} ({shares})"

    def run(self, rounds: int) -> Comparison:
        """Run all rounds, and return what was measured, also after Ctrl-C."""
        turns = [(n, each) for n in range(1, rounds + 1) for each in self._variants]
        try:
            is_complete = all(self._run_once(variant, n, rounds) for n, variant in turns)
        except KeyboardInterrupt:
            is_complete = False
        figures = tuple(with_ratios([*self._figures.values()]))
        return Comparison(
            self._folder,
            self._cores,
            self._cores_per_worker,
            rounds,
            figures,
            is_interrupted=not is_complete,
        )

    def _run_once(self, variant: Variant, number: int, rounds: int) -> bool:
        """Run a variant that has not failed and keep its figures; False if it was interrupted."""
        figures = self._figures[variant.name]
        if figures.failure:
            return True
        label = f"round {number} of {rounds} · {variant.name}"
        options = replace(
            self._options,
            workers=variant.workers,
            words=variant.words,
            job_dir=str(self._folder / f"{variant.folder_name}-{number}"),
            cpus_per_task=variant.cores or self._cores_per_worker,
        )
        spec = plan_run(self._project, self._job_of(variant), options)
        folder = spec.folder
        started = time.monotonic()
        with QuietView(self._console, [str(task) for task in spec.cluster.tasks()], label) as view:
            view.console.progress(f"{label} · starting")
            outcome = Runner(spec, view).run()
        seconds = time.monotonic() - started
        code, reason = outcome.code, outcome.failure
        if code in STOPPED_CODES:
            return False
        run = measurement(Summary.parse(folder.summary()), number, seconds) if code == 0 else None
        logs = str(folder.task_logs)
        if run is None:
            text = f"exit code {code}" if code else "no examples_per_second in summary.json"
            self._figures[variant.name] = replace(figures, failure=Failed(text, logs))
            shown = f"\n{reason.text(with_lines=True)}" if reason else ""
            self._console.log(f"{label}: {text}; logs: {logs}{shown}", "error")
        else:
            self._figures[variant.name] = replace(figures, runs=(*figures.runs, run))
            speed = f"{run.examples_per_second:,.0f} examples/s"
            self._console.log(f"{label}: {speed} ({duration(seconds)} in all)")
        for name in _UNUSED:
            with suppress(OSError):
                shutil.rmtree(folder.path / name)
        return True

    def _job_of(self, variant: Variant) -> Job | None:
        job = self._job
        if job is None or variant.global_batch is None:
            return job
        return replace(job, args=split_batch(job.args)[-1])
