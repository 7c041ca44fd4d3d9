"""Google's long-running operations (https://google.aip.dev/151)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlaunch.errors import GoogleError
from distlaunch.retry import Backoff

if TYPE_CHECKING:
    from distlaunch.engines.vertex.client import Session

_DEADLINE = 300.0  # seconds; enabling APIs takes up to some minutes


def call_and_wait(session: Session, method: str, service: str, path: str, **options: Any) -> None:
    """Make a call that starts an operation, and wait until it is done.

    The parameters are those of `Session.call`. GoogleError is raised if the operation fails.
    """
    operation = session.call(method, service, path, **options)
    backoff = Backoff(1.0, 8.0, deadline=_DEADLINE, clock=session.clock)
    while not operation.get("done"):
        delay = backoff.next_delay()
        if delay is None:
            what = f"{service}.googleapis.com: not done after {_DEADLINE:.0f} s"
            raise GoogleError(what, remedy="try again later")
        session.sleep(delay)
        operation = session.call("GET", service, operation["name"])
    if error := operation.get("error"):
        raise GoogleError(f"Google refuses ({error.get('code')}): {error.get('message')}")
