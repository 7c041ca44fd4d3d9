"""Long lists, page by page."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.service.answers import Refused, invalid_payload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NUMBER = re.compile(r"\d{1,9}", re.ASCII)


def page(
    name: str, items: Sequence[Any], options: Mapping[str, str], *, usual: int, most: int
) -> dict[str, Any]:
    """Return a page of a list that does not change, under its name.

    Parameters
    ----------
    options
        The query, with ``pageSize`` and ``pageToken``.
    usual, most
        Items on a page: where no size is asked for, and at most.

    Raises
    ------
    Refused
        If the options cannot be.
    """
    first, size = _first(options.get("pageToken", "")), _size(options.get("pageSize", "0"))
    size = min(size or usual, most)
    told: dict[str, Any] = {name: list(items[first : first + size])}
    if first + size < len(items):
        told["nextPageToken"] = base64.urlsafe_b64encode(str(first + size).encode()).decode()
    return told


def _size(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise invalid_payload(f"Invalid value at 'page_size' (TYPE_INT32), \"{text}\"")
    return int(text)


def _first(token: str) -> int:
    try:
        number = base64.urlsafe_b64decode(token).decode("ascii") or "0"
    except ValueError:
        number = ""
    if not _NUMBER.fullmatch(number):
        raise Refused(400, "The page token is invalid.")
    return int(number)
