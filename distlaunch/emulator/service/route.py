"""Where a request leads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.emulator.service.answers import Answer, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlaunch.emulator.service.answers import Request
    from distlaunch.emulator.service.apis import Call


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request leads.

    Parameters
    ----------
    call
        What kind of call it is.
    project
        The project that it is about, as far as it says.
    answer
        Gives the answer; `True` where a quota is to be exceeded.
    needs
        The permission that the caller has to have, nothing where none is asked for.
    takes_any_content
        Whether the request's content may be of any type; by default it has to be JSON.
    """

    call: Call
    project: str
    answer: Callable[[bool], Answer]
    needs: str = ""
    takes_any_content: bool = False


def no_method(request: Request) -> Refused:
    """Return the refusal of a request that leads nowhere."""
    return Refused(404, f"Method not found: {request.method} {request.path}")
