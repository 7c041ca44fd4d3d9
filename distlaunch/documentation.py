"""Where the documentation is: online, in a wheel, or built in a checkout."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

from distlaunch.errors import UsageError, did_you_mean

SITE = "https://distlaunch.readthedocs.io/en/stable/"
_CODES = "look-up/check-codes.html"
_TOPICS = "topics.json"  # pages, check codes and commands, written by tools/site/hooks.py
_HERE = Path(__file__).parent


def code_url(code: str) -> str:
    """Return the online address of a check code."""
    return f"{SITE}{_CODES}#{code}"


def local_site() -> Path | None:
    """Return the folder of the site in a wheel or, if it was built, in a checkout."""
    folders = (_HERE / "site", _HERE.parent / "build" / "site")
    return next((folder for folder in folders if (folder / _TOPICS).is_file()), None)


def find_page(topic: str | None) -> str:
    """Return the address of a topic's page, online if the site is not on this machine.

    Raises
    ------
    UsageError
        If the site has no page on it.
    """
    folder = local_site()
    if folder is None:  # where the search finds a topic
        return f"{SITE}?q={quote(topic)}" if topic else SITE
    topics = json.loads((folder / _TOPICS).read_text(encoding="utf-8"))
    if topic and topic not in topics:
        hint = did_you_mean(topic, topics) or "; expected a page, a check code or a command"
        raise UsageError(f"no page on {topic!r}{hint}")
    path, _, anchor = topics[topic or "index"].partition("#")
    address = (folder / path).resolve().as_uri()
    return f"{address}#{anchor}" if anchor else address
