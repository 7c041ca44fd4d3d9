"""Offline pages: texts, facts, tables, bars and charts in one HTML file that needs no network.

``templates/page.html.j2`` has the layout, and ``templates/page.js`` draws the charts with uPlot.
"""

from __future__ import annotations

import hashlib
import math
import os
from base64 import b64encode
from collections.abc import Mapping, Sequence  # noqa: TC003 - of dataclasses
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote, urlsplit

from distlaunch import __version__, resources
from distlaunch.summary import IN_WORDS, milliseconds
from distlaunch.text import without_colours

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.summary import Timing

_STYLES = ("vendor/uPlot.min.css", "page.css")
_SCRIPTS = ("vendor/uPlot.iife.min.js", "page.js")
_LICENCE = "vendor/uPlot.LICENSE"
_PARTS_EXPLAINED = (
    "Compute is the work on a task's own examples, exchange the all-reduce of gradients between "
    "tasks, input the time in which a task waits for data."
)


class Link(str):
    """A text with an address: a file beside the page, or a web page."""

    __slots__ = ("href",)
    href: str

    @classmethod
    def to_file(cls, text: str, path: Path, page: Path) -> str:
        """Return a link to a file relative to the page, so that both can be moved together."""
        if not os.path.exists(path):  # noqa: PTH110 - False for what cannot be a path, too
            return text
        link = cls(text)
        link.href = quote(os.path.relpath(path.absolute(), page.absolute().parent))
        return link

    @classmethod
    def to_url(cls, url: str) -> str:
        """Return a link to a web page, or the text alone if it is the address of none."""
        link = cls(url)
        link.href = url
        return link if urlsplit(url).scheme in ("http", "https") else url


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars: label, parts, the text behind it, and lowest to highest where known."""

    title: str
    rows: Sequence[tuple[str, Sequence[float], str, tuple[float, float] | None]]
    names: Sequence[str] = ()  # of the parts

    @property
    def most(self) -> float:
        """The end of the longest bar."""
        return max(max(sum(parts), *(ends or (0.0,))) for _, parts, _, ends in self.rows) or 1.0


@dataclass(frozen=True, slots=True)
class Series:
    """A line or points of a chart, a value for each of its `xs`; `colour` is one of the palette.

    Points have `labels`, and `ranges`: lowest and highest x, lowest and highest y.
    """

    name: str
    ys: Sequence[float | None]
    colour: int = 0
    is_dashed: bool = False
    labels: Sequence[str] = ()
    ranges: Sequence[Sequence[float]] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """Series over common, ascending `xs`; `style` is lines, points or stack, parts of a whole."""

    title: str
    x: str
    y: str
    xs: Sequence[float]
    series: Sequence[Series]
    style: str = "lines"
    logarithmic: str = ""  # the axes that may be so: y, xy
    x_labels: Sequence[str] = ()  # in place of the whole numbers from 0
    mark: tuple[float, str] | None = None  # an x, and what is there


Part: TypeAlias = "str | Mapping[str, str] | Sequence[Sequence[str]] | Bars | Chart"
"""A text, facts by their names, a table whose first row has the heads, bars or a chart."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page: what a reader is to know first, what it is about, and its sections by their titles.

    `about` is by default the command that writes the page. Sections without parts are left out;
    those in `folded` are opened by a click. `data` is the JSON behind the page.
    """

    title: str
    lead: str
    about: Mapping[str, str]
    sections: Mapping[str, Sequence[Part]]
    folded: Sequence[str] = ()
    state: str = ""
    data: Mapping[str, Any] | None = None


def step_bars(
    title: str, timings: Mapping[str, Timing], texts: Mapping[str, str] | None = None
) -> list[Part]:
    """Return a bar for each step, and what its parts are; `texts` are behind the bars."""
    rows = []
    for name, timing in timings.items():
        parts = [1e3 * getattr(timing, part) for part in IN_WORDS]
        parts.append(max(0.0, 1e3 * timing.total - sum(parts)))
        text = f"{milliseconds(timing.total)}{(texts or {}).get(name, '')}"
        rows.append((name, parts, text, None))
    others = ["other"] if any(parts[-1] > 0.01 for _, parts, *_ in rows) else []
    names = [*IN_WORDS.values(), *others]
    return [Bars(title, rows, names), _PARTS_EXPLAINED] if rows else []


def render(page: Page) -> str:
    """Return the page as HTML; only its own scripts can run in it, known by their hashes."""
    import jinja2

    folder = resources.templates()
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    styles, scripts = (
        [(folder / name).read_text("utf-8").strip() for name in names]
        for names in (_STYLES, _SCRIPTS)
    )
    sections = {
        title: [part for part in parts if getattr(part, "rows", part)]
        for title, parts in page.sections.items()
    }
    charts = [part for parts in sections.values() for part in parts if isinstance(part, Chart)]
    html = environment.get_template("page.html.j2").render(
        page=page,
        sections=sections,
        version=__version__,
        charts=[_as_json(asdict(chart)) for chart in charts],
        data=_as_json(page.data),
        styles=styles,
        scripts=scripts,
        hashes=[b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts],
        licence=(folder / _LICENCE).read_text("utf-8"),
    )
    return without_colours(html)


def _as_json(value: Any) -> Any:
    """Return JSON data; numbers that are not finite become null."""
    if isinstance(value, dict):
        return {name: _as_json(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
