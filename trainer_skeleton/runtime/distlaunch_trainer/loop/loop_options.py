"""What a training loop is made with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.report.audit import Audit
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.saving.checkpoints import Checkpoints
from distlaunch_trainer.step.step_functions import StepFunctions
from distlaunch_trainer.task.stop_signal import StopSignal

from .callbacks import Callbacks


@dataclass(frozen=True)
class TaskServices:
    """The tasks that train together, and where this one saves and reports, and is stopped."""

    cluster: Cluster
    checkpoints: Checkpoints
    report: Report
    stop: StopSignal


@dataclass(frozen=True)
class LoopOptions:
    """When a loop ends, validates, saves and prints."""

    epochs: int  # in total, with those done before a resume
    first_epoch: int = 0  # its number for callbacks
    epochs_before: int = 0  # of the program before the first one, for reports
    # Epochs after which to validate: every n-th, or those with these numbers, from 1.
    validation_freq: int | Sequence[int] = 1
    checkpoint_every: int = 0  # steps; 0 for a checkpoint at the end of each epoch only
    step_timeout: float = 0.0  # seconds without a finished step until this task ends; 0 for none
    single_steps: bool = False  # executed and read one at a time, so that an error names its step
    prints_epochs: bool = True

    def validates_after(self, epoch: int) -> bool:
        """Return whether to validate after an epoch with this number, from 0."""
        chosen = self.validation_freq
        return (epoch + 1) % chosen == 0 if isinstance(chosen, int) else epoch + 1 in chosen


@dataclass(frozen=True)
class StepTools:
    """What trains the steps of a loop, is called around them, and observes them."""

    functions: StepFunctions
    callbacks: Callbacks
    audit: Audit | None = None  # if the data has the numbers of its examples
