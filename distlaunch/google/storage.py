"""What jobs leave in Cloud Storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distlaunch.google.session import Session


def read(session: Session, uri: str) -> bytes | None:
    """Return what a file (``gs://BUCKET/PATH``) holds, None where there is none.

    Raises
    ------
    GoogleError
        If it may not be read, or Google cannot be reached.
    """
    raise NotImplementedError
