"""A call that was not answered at all → what kept it from that."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from distlaunch.errors import GoogleError, Unavailable
from distlaunch.google.api_errors import LOGIN

if TYPE_CHECKING:
    from collections.abc import Iterator

INVALID = "INVALID_ANSWER"


def no_token(problem: Exception) -> GoogleError:
    """Return what to tell where a call could not be signed."""
    from google.auth.exceptions import TransportError

    told = why(problem)
    if isinstance(problem, TransportError) or getattr(problem, "retryable", False):
        return Unavailable(f"cannot get a token ({told})", reason="UNREACHABLE", heard=False)
    return GoogleError(
        f"Google does not accept the credentials ({told}); run '{LOGIN}'",
        status=401,
        reason="UNAUTHENTICATED",
    )


def invalid(host: str, problem: str) -> GoogleError:
    """Return the error for an answer that is a success, but not what the API documents."""
    return GoogleError(f"{host}: not a valid answer: {problem}", status=200, reason=INVALID)


def garbled(host: str, problem: str) -> Unavailable:
    """Return the error for an answer that is not the API's, such as a proxy's page."""
    return Unavailable(f"{host}: not a valid answer: {problem}", status=200, reason=INVALID)


def was_not_sent(problem: BaseException) -> bool:
    """Whether there was no connection, so that nobody can have heard the call."""
    causes = list(_causes(problem))
    if any(isinstance(each, (ConnectionRefusedError, socket.gaierror)) for each in causes):
        return True
    return any(type(each).__name__ == "NewConnectionError" for each in causes)


def why(problem: BaseException) -> str:
    """Return what the system, or else the library, says of a failure."""
    for each in _causes(problem):
        if isinstance(each, OSError) and each.strerror:
            return each.strerror.lower()
    innermost = list(_causes(problem))[-1]
    text = innermost.args[0] if innermost.args else innermost
    return " ".join(str(text).split()).rstrip(".")[:300] or type(innermost).__name__


def _causes(problem: BaseException) -> Iterator[BaseException]:
    """Go down to where an exception came from, through what the libraries wrap it in."""
    seen: set[int] = set()
    found: BaseException | None = problem
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        inner = getattr(found, "reason", None)  # urllib3's
        arguments = [each for each in (inner, *found.args) if isinstance(each, BaseException)]
        found = arguments[0] if arguments else found.__cause__ or found.__context__


def host(url: str) -> str:
    """Return who was called: the host, with the scheme where that is not HTTPS."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme == "http" else parts.netloc
