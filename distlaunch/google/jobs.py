"""Vertex AI's jobs of one project and region."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from distlaunch.google.session import Session

Collection = Literal["customJobs", "hyperparameterTuningJobs"]

ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED"})


class Created(NamedTuple):
    """A job that Google has; `is_new` is False where it was found, as an answer had been lost."""

    job: dict[str, Any]
    is_new: bool


class Jobs:
    """The custom jobs and tuning jobs of one project and region."""

    def __init__(self, session: Session, project: str, region: str) -> None:
        raise NotImplementedError

    def create(
        self, collection: Collection, body: Mapping[str, Any], *, may_exist: bool = False
    ) -> Created:
        """Make a job, once: where an answer is lost, the job is looked for before another try.

        Parameters
        ----------
        body
            Google's JSON, with the label ``distlaunch-launch``.
        may_exist
            Whether an earlier command may have made it, so that it is looked for first.

        Raises
        ------
        GoogleError
            If it is refused.
        Unavailable
            If Google cannot be reached, or the answer was lost and it cannot be asked for the job.
        """
        raise NotImplementedError

    def find(self, collection: Collection, launch_id: str) -> dict[str, Any] | None:
        """Return the job with this launch id, if Google lists one."""
        raise NotImplementedError

    def get(self, name: str) -> dict[str, Any]:
        """Return a job by its resource name (``projects/P/locations/R/customJobs/ID``)."""
        raise NotImplementedError

    def list(
        self, collection: Collection, matching: str = "", limit: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """Go through the jobs, page by page."""
        raise NotImplementedError

    def cancel(self, name: str) -> None:
        """Ask for a job's end; it goes by way of CANCELLING."""
        raise NotImplementedError

    def delete(self, name: str) -> None:
        """Remove a job that has ended."""
        raise NotImplementedError


def state(job: Mapping[str, Any]) -> str:
    """Return a job's state without its prefix, as ``RUNNING``."""
    raise NotImplementedError


def console_url(job: Mapping[str, Any], project: str) -> str:
    """Return the address of a job's page in Google's console."""
    raise NotImplementedError
