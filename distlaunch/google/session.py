"""One small client for all of Google's JSON APIs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from google.auth.credentials import Credentials

PATIENCE = 60.0  # seconds for which a call that may do better later is tried again


class Session:
    """Calls to Google, or to who answers in its place at `endpoint`."""

    endpoint: str | None
    credentials: Credentials

    def call(
        self,
        method: str,
        service: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
        region: str | None = None,
        patience: float = PATIENCE,
    ) -> dict[str, Any]:
        """Return the answer to a call.

        Parameters
        ----------
        service, path
            As in `endpoints.url`.
        region
            Where the service is regional.
        patience
            Seconds for which what is transient is tried again; 0 for a single attempt.

        Raises
        ------
        Unavailable
            If there is no answer, or it asks to come back later; the call may have been heard.
        GoogleError
            If it is refused.
        """
        raise NotImplementedError


def connect(
    endpoint: str | None = None,
    *,
    project: str | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Session:
    """Return a session; nothing is called yet.

    Parameters
    ----------
    endpoint
        Who answers in Google's place: ``http://`` on loopback, where no credentials are used, or
        ``https://``, which gets the real ones.
    project
        Pays for the calls (quota) where the credentials name no other.

    Raises
    ------
    GoogleError
        If there are no credentials, with the command that makes them.
    UsageProblem
        If the endpoint is none of the two.
    """
    raise NotImplementedError
