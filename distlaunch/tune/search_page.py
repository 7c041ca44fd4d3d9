"""The page of a search: its trials in turn, and by each parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlaunch.job.trial import argument
from distlaunch.text import plural
from distlaunch.ui.page import Chart, Link, Page, Series

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from distlaunch.text import Table

FILE_NAME = "search.html"  # in the folder of a search


def build(search: Mapping[str, Any], table: Table, path: Path) -> Page:
    """Return the page of a search, as a file at a path.

    `search` is what ``tune --json`` prints, and `table` its trials for a terminal.
    """
    trials, metric = search["trials"], search["metric"]
    names = ["trial", *dict.fromkeys(name for trial in trials for name in trial["parameters"])]
    best = [
        f"; the best is trial {trial['id']}, with {metric} {trial['metric']:.4g}"
        for trial in trials
        if trial["id"] == search["best"]
    ]
    heads, *rows = table.rows
    linked = [
        (Link.to_file(name, path.parent / f"trial-{name}/run.html", path), *cells)
        for name, *cells in rows
    ]
    return Page(
        f"{search['job']} · search: {search['goal']} {metric}",
        f"{plural(len(trials), 'trial')}{''.join(best) or ', of which none has succeeded'}.",
        {},
        {
            "The command that trains with the best options": [search["command"] or ""],
            "Trials": [
                [heads, *linked],
                {f"trial {each['id']}": each["reason"] for each in trials if each["reason"]},
            ],
            "By parameter": [chart for name in names if (chart := _by(name, trials, metric))],
        },
        state=search["state"],
        data=search,
    )


def _by(name: str, trials: Sequence[Mapping[str, Any]], metric: str) -> Chart | None:
    """Return a chart of the metric by a parameter; texts are in alphabetical order."""
    values = [{"trial": each["id"], **each["parameters"]}.get(name) for each in trials]
    points = [
        (value, each)
        for value, each in zip(values, trials, strict=True)
        if value is not None and each["metric"] is not None
    ]
    texts: list[str] = []
    if any(isinstance(value, str) for value, _ in points):
        texts = sorted({argument(value) for value, _ in points})
        points = [(texts.index(argument(value)), each) for value, each in points]
    points.sort(key=lambda point: point[0])
    ys = [each["metric"] for _, each in points]
    series = [Series(metric, ys, labels=[str(each["id"]) for _, each in points])]
    xs, title = [x for x, _ in points], f"{metric} by {name}; the numbers are those of trials"
    log = "" if texts or name == "trial" else "x"
    return Chart(title, name, metric, xs, series, "points", log, texts) if points else None
