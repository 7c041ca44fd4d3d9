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


def topics() -> dict[str, str]:
    """Return the address of each page, check code and command; none without a site here.

    The site is in the wheel or, if it was built, in the checkout.
    """
    folders = (_HERE / "site", _HERE.parent / "build" / "site")
    site = next((folder for folder in folders if (folder / _TOPICS).is_file()), None)
    if site is None:
        return {}
    paths = json.loads((site / _TOPICS).read_text(encoding="utf-8"))
    return {topic: f"{site.resolve().as_uri()}/{path}" for topic, path in paths.items()}


def find_page(topic: str | None) -> str:
    """Return the address of a topic's page, online if the site is not on this machine.

    Raises
    ------
    UsageError
        If the site has no page on it.
    """
    known = topics()
    if not known:  # the site's search finds a topic
        return f"{SITE}?q={quote(topic)}" if topic else SITE
    if topic and topic not in known:
        hint = did_you_mean(topic, known) or "; expected a page, a check code or a command"
        raise UsageError(f"no page on {topic!r}{hint}")
    return known[topic or "index"]
