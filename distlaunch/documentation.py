"""Where the documentation is: online, in a wheel, or built in a checkout."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from distlaunch.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

SITE = "https://distlaunch.readthedocs.io/en/stable/"
_CODES = "look-up/check-codes.html"
_TOPICS = "topics.json"  # with their paths, written by tools/site/hooks.py
_HERE = Path(__file__).parent


def code_url(code: str) -> str:
    """Return the online address of a check code."""
    return f"{SITE}{_CODES}#{code}"


def topics() -> dict[str, str]:
    """Return the address of each page, check code, command, trainer option and key of a job file.

    The site is in the wheel or, if it was built, in the checkout. Of a checkout without it, these
    are the pages and the check codes, online; elsewhere there are none.
    """
    folders = (_HERE / "site", _HERE.parent / "build" / "site")
    site = next((folder for folder in folders if (folder / _TOPICS).is_file()), None)
    if site is None:
        return _online_topics(_HERE.parent / "docs")
    paths = json.loads((site / _TOPICS).read_text(encoding="utf-8"))
    return {topic: f"{site.resolve().as_uri()}/{path}" for topic, path in paths.items()}


def _online_topics(docs: Path) -> dict[str, str]:
    """Return the online addresses of the pages in a folder, and of its check codes."""
    files = {path: path.relative_to(docs).with_suffix(".html") for path in docs.glob("*/*.md")}
    if not files:
        return {}
    codes = (docs / _CODES).with_suffix(".md").read_text(encoding="utf-8")
    topics = {code: code_url(code) for code in re.findall(r"^### (\S+)$", codes, re.MULTILINE)}
    topics |= {path.stem: f"{SITE}{file.as_posix()}" for path, file in files.items()}
    return topics | {"index": SITE}


def find_page(words: Sequence[str]) -> str:
    """Return the address of a topic's page, online if the site is not on this machine.

    The words of a topic may be one or several, such as ``exit codes`` or ``--epochs``.

    Raises
    ------
    UsageError
        If the site has no page on it.
    """
    known, text = topics(), " ".join(words)
    topic = "-".join(text.split()).lstrip("-") or "index"
    if not known:  # the site's search finds a topic
        return f"{SITE}?q={quote(text)}" if text else SITE
    if topic not in known:
        expected = "expected a page, a check code, a command, an option or a key of the job file"
        raise UsageError(f"no page on {text!r}{did_you_mean(topic, known) or f'; {expected}'}")
    return known[topic]
