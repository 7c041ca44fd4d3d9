"""What `make docs` adds to mkdocs: parts of pages from the code, and the topics of the site."""

from __future__ import annotations

import json
import re
import shutil
from importlib.metadata import files
from pathlib import Path
from typing import TYPE_CHECKING

import commands
import keras_table
import reference

if TYPE_CHECKING:
    from collections.abc import Callable

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

PARTS: dict[str, Callable[[], str]] = {
    "look-up/api.md": reference.api,
    "look-up/cli.md": commands.sections,
    "look-up/events.md": reference.events,
    "look-up/exit-codes.md": reference.exit_codes,
    "look-up/job-file.md": reference.job_keys,
    "look-up/keras.md": keras_table.page,
    "look-up/trainer-options.md": reference.trainer_options,
}
"""What follows the text of a page."""

# Pages whose headings are topics of `distlaunch docs`, too.
_ANCHORED = ("look-up/check-codes.md", "look-up/cli.md")
# The tests' marks of blocks, such as `console long`, which mkdocs does not know.
_MARKED = re.compile(r"^( *```[a-z]+) [a-z]+$", re.MULTILINE)
# Pages whose tables have the trainer's options and the keys of the job file.
_TABLES = ("look-up/trainer-options.md", "look-up/job-file.md")
_ROW = re.compile('<code id="([^"]+)"')
_HEADING = re.compile('<h[23] id="([a-z-]+)"')
_topics: dict[str, str] = {}


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Add the part of a page that is from the code, and leave out the tests' marks."""
    part = PARTS.get(page.file.src_uri, str)()
    return _MARKED.sub(r"\1", f"{markdown}\n\n{part}")


def on_env(env: object, files: Files, **_: object) -> object:
    """Note the addresses of all topics: of one name, a page comes first, then a command."""
    pages = [file.page for file in files.documentation_pages() if file.page]
    for page in pages:
        for each in _ROW.findall(page.content or "") if page.file.src_uri in _TABLES else ():
            _topics.setdefault(each, f"{page.url}#{each}")
            _topics.setdefault(each.rpartition(".")[2], f"{page.url}#{each}")
    for page in pages:
        if page.file.src_uri in _ANCHORED:
            ids = _HEADING.findall(page.content or "")
            _topics.update({each: f"{page.url}#{each}" for each in ids})
    _topics.update({Path(page.file.src_uri).stem: page.url for page in pages})
    return env


def on_post_build(config: MkDocsConfig, **_: object) -> None:
    """Write the topics and the theme's licence."""
    site = Path(config.site_dir)
    (site / "topics.json").write_text(json.dumps(_topics, indent=0), encoding="utf-8")
    package = files("mkdocs-material") or ()
    licence = next(path for path in package if path.match("*.dist-info/*/LICENSE"))
    shutil.copy(str(licence.locate()), site / "assets" / "LICENSE")
