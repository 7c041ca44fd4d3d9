"""The report of a comparison: a table, ``compare.json`` and ``compare.html``."""

from __future__ import annotations

from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Any

from distlaunch.summary import PARTS, Timing
from distlaunch.text import Table, duration, percent, plural
from distlaunch.ui.chart import bars
from distlaunch.ui.page import Bars, Page, step_bars

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.local.compare.figures import VariantFigures
    from distlaunch.local.compare.rounds import Comparison
    from distlaunch.local.compare.verdict import Verdict


def rows(comparison: Comparison) -> list[list[str]]:
    """Return a head and a row per variant; milliseconds of a step and its parts."""
    head = ["variant", "examples/s", "min-max", "speed-up", "efficiency", "step ms", *PARTS, "run"]
    return [head, *map(_row, comparison.figures)]


def table(comparison: Comparison) -> Table:
    """Return the rows for a terminal; a narrow one leaves out the parts of a step last."""
    shown = rows(comparison)
    least = ("run", "min-max", *reversed(PARTS))
    return Table(shown, optional=[shown[0].index(name) for name in least])


def _row(figures: VariantFigures) -> list[str]:
    name = figures.variant.name
    if not figures.runs:
        return [name, "failed" if figures.failure else "not run", *[""] * 9]
    timing = figures.timing
    return [
        name,
        f"{figures.speed:,.0f}",
        f"{figures.slowest:,.0f}-{figures.fastest:,.0f}",
        "" if figures.speedup is None else f"{figures.speedup:.2f}",
        "" if figures.efficiency is None else percent(figures.efficiency),
        _milliseconds(figures.step_seconds),
        *(_milliseconds(getattr(timing, part) if timing else None) for part in PARTS),
        duration(median(run.seconds for run in figures.runs)),
    ]


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:,.2f}"


def speed_chart(comparison: Comparison) -> str:
    """Return the speeds as bars of a terminal."""
    measured = [each for each in comparison.figures if each.runs]
    return bars([(e.variant.name, e.speed, f"{e.speed:,.0f} examples/s") for e in measured])


def to_json(comparison: Comparison, verdict: Verdict) -> dict[str, Any]:
    """Return the contents of ``compare.json``; see docs/schemas/compare.json."""
    return {
        "id": comparison.folder.name,
        "folder": str(comparison.folder),
        "machine": {"cores": comparison.cores},
        "cores_per_worker": comparison.cores_per_worker,
        "rounds": comparison.rounds,
        "interrupted": comparison.is_interrupted,
        "variants": list(map(_variant, comparison.figures)),
        "verdict": asdict(verdict),
    }


def _variant(figures: VariantFigures) -> dict[str, Any]:
    timing, has_run = figures.timing, bool(figures.runs)
    speed = {"median": figures.speed, "min": figures.slowest, "max": figures.fastest}
    return {
        "name": figures.variant.name,
        "workers": figures.variant.workers,
        "cores": figures.cores,
        "global_batch": figures.global_batch,
        "shares_cores": figures.shares_cores,
        "examples_per_second": speed if has_run else None,
        "speedup": figures.speedup,
        "efficiency": figures.efficiency,
        "step_seconds": figures.step_seconds if has_run else None,
        "timing": asdict(timing) if timing else None,
        "gradient_bytes": next((b for run in figures.runs if (b := run.gradient_bytes)), None),
        "runs": [asdict(run) for run in figures.runs],
        "failure": asdict(figures.failure) if figures.failure else None,
    }


def build_page(comparison: Comparison, data: Mapping[str, Any]) -> Page:
    """Return the page; `data` is what ``compare.json`` has."""
    measured = {each.variant.name: each for each in comparison.figures if each.runs}
    failed = {
        each.variant.name: f"{each.failure.text}; logs: {each.failure.log}"
        for each in comparison.figures
        if each.failure
    }
    speeds = [
        (name, [each.speed], f"{each.speed:,.0f}", (each.slowest, each.fastest))
        for name, each in measured.items()
    ]
    timings = {name: timing for name, each in measured.items() if (timing := _timing(each))}
    cores, rounds = plural(comparison.cores, "core"), plural(comparison.rounds, "round")
    how = f"{comparison.cores_per_worker} of {cores} per worker, {rounds}."
    return Page(
        "Does distribution pay?",
        data["verdict"]["text"],
        {},
        {
            "What failed": [failed],
            "Speed": [Bars("Examples/s: the median, and lowest to highest", speeds), how],
            "Where the time of a step goes": step_bars("Milliseconds of a step", timings),
            "Figures": [rows(comparison)],
        },
        data=data,
    )


def _timing(figures: VariantFigures) -> Timing | None:
    """Return the parts of a step, or its time alone where they were not measured."""
    seconds = figures.step_seconds
    return figures.timing or (Timing(seconds, 0.0, 0.0, 0.0, 0.0, {}) if seconds else None)
