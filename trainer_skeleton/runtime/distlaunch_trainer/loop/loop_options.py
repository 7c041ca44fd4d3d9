"""What a training loop is made with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.report.audit import Audit
from distlaunch_trainer.report.profile import Profile
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.saving.checkpoints import Checkpoints
from distlaunch_trainer.step.step_functions import StepFunctions
from distlaunch_trainer.task.stop_signal import StopSignal

from .callbacks import Callbacks
from .measurements import Measurements


@dataclass(frozen=True)
class TaskServices:
    """The tasks that train together, and where this one saves and reports, and is stopped."""

    cluster: Cluster
    checkpoints: Checkpoints
    report: Report
    stop: StopSignal


@dataclass(frozen=True)
class LoopOptions:
    """When a loop ends, validates, saves and prints.

    Attributes
    ----------
    epochs
        Epochs in total, with those done before a resume.
    first_epoch
        The number of the first epoch for callbacks.
    epochs_before
        Epochs of the program before the first one, for reports.
    validation_freq
        Epochs after which to validate: every n-th, or those with these numbers, from 1.
    checkpoint_every
        Steps between checkpoints; 0 for one at the end of each epoch only.
    step_timeout
        Seconds without a finished step after which this task ends; 0 for none.
    single_steps
        Whether to execute one step at a time and read its result, so that an error names it.
    prints_epochs
        Whether to print a line for each epoch.
    """

    epochs: int
    first_epoch: int = 0
    epochs_before: int = 0
    validation_freq: int | Sequence[int] = 1
    checkpoint_every: int = 0
    step_timeout: float = 0.0
    single_steps: bool = False
    prints_epochs: bool = True

    def validates_after(self, epoch: int) -> bool:
        """Return whether to validate after an epoch with this number, from 0."""
        chosen = self.validation_freq
        return (epoch + 1) % chosen == 0 if isinstance(chosen, int) else epoch + 1 in chosen


@dataclass(frozen=True)
class StepTools:
    """What trains the steps of a loop, is called around them, and observes them.

    Attributes
    ----------
    functions, callbacks
        Those of the model.
    measurements
        What is measured of the steps.
    audit
        Records the examples that are trained on, if the data has their numbers.
    profile
        Which steps to profile; by default none.
    """

    functions: StepFunctions
    callbacks: Callbacks
    measurements: Measurements
    audit: Audit | None = None
    profile: Profile = field(default_factory=lambda: Profile(None, "", is_chief=False))
