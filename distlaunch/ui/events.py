"""What can be seen of a running job, wherever it runs; `progress_view` shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

Level = Literal["debug", "info", "warning", "error"]


class ShowMessage(Protocol):
    """Shows a message, as `Console.log` does."""

    def __call__(self, text: str, level: Level = "info", /) -> None: ...


@dataclass(frozen=True, slots=True)
class TaskLines:
    r"""A task wrote lines.

    Parameters
    ----------
    task
        Its name, as ``worker:0``.
    text
        Whole lines, each ended by ``\n``.
    time, severity
        When they were written (RFC 3339) and as what (Google's word, as ``ERROR``), where the lines
        are one entry of a log and that is wanted.
    """

    task: str
    text: str
    time: str = ""
    severity: str = ""


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
    """A job in the cloud got into another state.

    Parameters
    ----------
    state
        Google's name without its prefix, as ``RUNNING``.
    after
        Seconds that it was in the state before, None for the first that is seen.
    error
        Google's error, if it failed and the error is known. If it becomes known later, the same
        state is sent again with it.
    """

    state: str
    after: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message; lines after the first are quoted from elsewhere."""

    text: str
    level: Level = "info"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing is shown until something has come; an empty text: it has."""

    text: str


Event = TaskLines | TaskChanged | Trained | JobChanged | Notice | Waiting
