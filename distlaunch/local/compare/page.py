"""The report of a comparison: a table, ``compare.json``, ``compare.html`` and ``compare.png``."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch.files import atomic_write
from distlaunch.summary import PARTS
from distlaunch.text import duration
from distlaunch.ui.chart import bars

if TYPE_CHECKING:
    from distlaunch.local.compare.figures import VariantFigures
    from distlaunch.local.compare.rounds import Comparison
    from distlaunch.local.compare.verdict import Verdict

_COLOURS = {"input": "#e69f00", "compute": "#0072b2", "exchange": "#d55e00", "wait": "#cc79a7"}
_OTHER = ("other", "#bbbbbb")
_LEFT, _WIDTH = 230, 430  # of the bars of the HTML, whose drawing is 800 wide
_TEMPLATE = Path(__file__).with_name("report.html.j2")


def rows(comparison: Comparison) -> list[list[str]]:
    """Return a head and a row per variant; milliseconds of a step and its parts."""
    head = ["variant", "examples/s", "min-max", "speed-up", "efficiency", "step ms", *PARTS, "run"]
    return [head, *map(_row, comparison.figures)]


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
        "" if figures.efficiency is None else f"{100 * figures.efficiency:.0f} %",
        _milliseconds(figures.step_seconds),
        *(_milliseconds(getattr(timing, part) if timing else None) for part in PARTS),
        duration(figures.seconds),
    ]


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:,.2f}"


def speed_chart(comparison: Comparison, width: int) -> str:
    """Return the speeds as bars of a terminal."""
    measured = [each for each in comparison.figures if each.runs]
    return bars(
        [(each.variant.name, each.speed, f"{each.speed:,.0f} examples/s") for each in measured],
        width,
    )


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
        "gradient_bytes": figures.gradient_bytes,
        "runs": [asdict(run) for run in figures.runs],
        "failure": asdict(figures.failure) if figures.failure else None,
    }


def write_files(comparison: Comparison, verdict: Verdict) -> list[str]:
    """Write ``compare.json``, ``.html`` and ``.png``; return a note per file that was not written.

    Raises
    ------
    OSError
        If the folder cannot be written.
    """
    data = to_json(comparison, verdict)
    atomic_write(comparison.folder / "compare.json", json.dumps(data, indent=1) + "\n")
    atomic_write(comparison.folder / "compare.html", _html(data, rows(comparison)))
    if find_spec("matplotlib") is None:
        remedy = "run pip install 'matplotlib>=3.9,<4'"
        return [f"no compare.png: matplotlib is not installed here; {remedy}"]
    _write_png(data, comparison.folder / "compare.png")
    return []


def _html(data: dict[str, Any], table: list[list[str]]) -> str:
    from jinja2 import Environment

    environment = Environment(autoescape=True)
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(data=data, rows=table, charts=_charts(data))


def _step_parts(variant: dict[str, Any]) -> dict[str, float]:
    """Return milliseconds of a step by part, and the rest as ``other``."""
    timing = variant["timing"] or {}
    parts = {name: 1e3 * timing.get(name, 0.0) for name in PARTS}
    total = 1e3 * (variant["step_seconds"] or 0.0)
    return parts | {_OTHER[0]: max(0.0, total - sum(parts.values()))}


def _charts(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the bars of the HTML: speed, and the parts of a step."""
    measured = [each for each in data["variants"] if each["examples_per_second"]]
    blue = {"examples/s": "#0072b2"}
    speeds = {each["name"]: each["examples_per_second"]["median"] for each in measured}
    steps = {each["name"]: _step_parts(each) for each in measured}
    return [
        _chart(
            "Speed (examples/s)", {name: {"examples/s": v} for name, v in speeds.items()}, blue, 0
        ),
        _chart("Where a step's time goes (ms)", steps, {**_COLOURS, _OTHER[0]: _OTHER[1]}, 2),
    ]


def _chart(
    title: str, values: dict[str, dict[str, float]], colours: dict[str, str], digits: int
) -> dict[str, Any]:
    most = max((sum(parts.values()) for parts in values.values()), default=0.0) or 1.0
    drawn_bars = []
    for label, parts in values.items():
        end, drawn = float(_LEFT), []
        for name, value in parts.items():
            width = _WIDTH * value / most
            text = f"{value:,.{digits}f}"
            drawn.append(
                {
                    "name": name,
                    "value": value,
                    "x": round(end, 2),
                    "width": round(width, 2),
                    "colour": colours[name],
                    "text": text,
                }
            )
            end += width
        total = f"{sum(parts.values()):,.{digits}f}"
        drawn_bars.append({"label": label, "parts": drawn, "end": round(end, 2), "text": total})
    legend = list(colours.items()) if len(colours) > 1 else []
    return {"title": title, "bars": drawn_bars, "legend": legend}


def _write_png(data: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    measured = [each for each in data["variants"] if each["examples_per_second"]]
    names = [each["name"] for each in measured]
    figure = Figure(figsize=(10, 2 + 0.5 * len(names)), layout="constrained")
    left, right = figure.subplots(1, 2)
    speeds = [each["examples_per_second"] for each in measured]
    medians = [each["median"] for each in speeds]
    below = [each["median"] - each["min"] for each in speeds]
    above = [each["max"] - each["median"] for each in speeds]
    left.barh(names, medians, xerr=[below, above], color=_COLOURS["compute"], capsize=3)
    left.set(xlabel="examples/s (median, minimum, maximum)")
    ends = [0.0] * len(names)
    for name, colour in [*_COLOURS.items(), _OTHER]:
        values = [_step_parts(each)[name] for each in measured]
        right.barh(names, values, left=ends, color=colour, label=name)
        ends = [end + value for end, value in zip(ends, values, strict=True)]
    right.set(xlabel="ms per step")
    handles, labels = right.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    for axes in (left, right):
        axes.invert_yaxis()
    figure.savefig(path, format="png", dpi=120)
