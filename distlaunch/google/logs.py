"""What a job's tasks and the platform wrote, from Cloud Logging."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distlaunch.google.session import Session

PLATFORM = "vertex"  # the name that the platform's own lines stand behind


class Entry(NamedTuple):
    """A log entry: when it was written (RFC 3339, UTC), by whom, and what."""

    time: str
    insert_id: str
    received: str
    task: str
    severity: str
    text: str


class Logs:
    """The logs of one project."""

    def __init__(self, session: Session, project: str) -> None:
        raise NotImplementedError

    def pages(
        self, job_ids: Sequence[str], *, since: str, tasks: Sequence[str] = (), patience: float = 60
    ) -> Iterator[list[Entry]]:
        """Go through the entries of jobs from a time on, oldest first, page by page."""
        raise NotImplementedError
