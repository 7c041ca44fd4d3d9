"""What can be seen of a running job, wherever it runs; `progress_view` shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.failure_reasons import FailureReport
    from distlaunch.job.trial import Trial

Level = Literal["debug", "info", "warning", "error"]


class ShowMessage(Protocol):
    """Shows a message, as `Console.log` does."""

    def __call__(self, text: str, level: Level = "info", /) -> None: ...


@dataclass(frozen=True, slots=True)
class TaskLines:
    """A task wrote lines."""

    task: str  # such as worker:0
    text: str  # whole lines, each ended by a newline
    time: str = ""  # when (RFC 3339), where the lines are one entry of a log and that is wanted
    severity: str = ""  # and as what: Google's word, such as ERROR


@dataclass(frozen=True, slots=True)
class TaskChanged:
    """A task got into another state, as ``started`` or ``stopped``."""

    task: str
    state: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Trained:
    """A task's training moved on; `event` is as reported, with ``event`` for its kind."""

    task: str
    event: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class JobChanged:
    """A job in the cloud got into another state, or the error of its state became known."""

    state: str  # Google's name without its prefix, such as RUNNING
    after: float | None = None  # seconds in the state before; None for the first one
    error: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message; lines after the first are quoted from elsewhere."""

    text: str
    level: Level = "info"


@dataclass(frozen=True, slots=True)
class JobFailed:
    """A job failed: its report, with the lines and the name of the task or without them."""

    report: FailureReport
    shows_lines: bool
    names_task: bool = True


@dataclass(frozen=True, slots=True)
class TrialsChanged:
    """The trials of a tuning job, which may have got further."""

    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing is shown until something has come; an empty text: it has."""

    text: str


Event = (
    TaskLines | TaskChanged | Trained | TrialsChanged | JobChanged | JobFailed | Notice | Waiting
)
