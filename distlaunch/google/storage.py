"""What jobs leave in Cloud Storage."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote

from distlaunch.errors import DistlaunchError, GoogleError, Unavailable

if TYPE_CHECKING:
    from distlaunch.google.session import Session

_URI = re.compile(r"gs://(?P<bucket>[^/]+)/(?P<path>.+)", re.DOTALL)


def read(session: Session, uri: str) -> bytes | None:
    """Return what a small file (``gs://BUCKET/PATH``) holds, None where there is none.

    Raises
    ------
    GoogleError
        If it may not be read, or is too large, or Google cannot be reached.
    """
    found = _URI.fullmatch(uri)
    if found is None:
        raise DistlaunchError(f"{uri}: not a file in Cloud Storage; expected gs://BUCKET/PATH")
    path = f"b/{quote(found['bucket'], safe='')}/o/{quote(found['path'], safe='')}"
    try:
        return session.download("storage", path, params={"alt": "media"})
    except GoogleError as problem:
        if problem.status == HTTPStatus.NOT_FOUND:
            return None
        kind = Unavailable if isinstance(problem, Unavailable) else GoogleError
        raise kind(f"{uri}: {problem}", status=problem.status, reason=problem.reason) from problem
