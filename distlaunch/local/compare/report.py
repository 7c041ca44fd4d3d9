"""The report of a comparison: a table, ``compare.json``, ``compare.html`` and ``compare.png``."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from distlaunch.files import atomic_write
from distlaunch.summary import PARTS
from distlaunch.text import Table, duration
from distlaunch.ui.chart import bars

if TYPE_CHECKING:
    from distlaunch.local.compare.figures import VariantFigures
    from distlaunch.local.compare.rounds import Comparison
    from distlaunch.local.compare.verdict import Verdict

_COLOURS = {
    "input": "#e69f00",
    "compute": "#0072b2",
    "exchange": "#d55e00",
    "wait": "#cc79a7",
    "other": "#bbbbbb",
}
_TEMPLATE = Path(__file__).with_name("report.html.j2")


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
        "" if figures.efficiency is None else f"{100 * figures.efficiency:.0f} %",
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


def write_files(comparison: Comparison, verdict: Verdict) -> str:
    """Write ``compare.json``, ``.html`` and ``.png``; return why there are no charts, if so.

    OSError is raised if the folder cannot be written.
    """
    folder, data = comparison.folder, to_json(comparison, verdict)
    charts = _draw(data) if find_spec("matplotlib") else {"svg": b"", "png": b""}
    atomic_write(folder / "compare.json", json.dumps(data, indent=1) + "\n")
    atomic_write(folder / "compare.html", _html(data, rows(comparison), charts["svg"].decode()))
    if charts["png"]:
        atomic_write(folder / "compare.png", charts["png"])
        return ""
    remedy = "run pip install 'matplotlib>=3.9,<4'"
    return f"no charts in {folder / 'compare.html'}: matplotlib is not installed here; {remedy}"


def _html(data: dict[str, Any], table: list[list[str]], svg: str) -> str:
    from jinja2 import Environment

    template = Environment(autoescape=True).from_string(_TEMPLATE.read_text("utf-8"))
    return template.render(data=data, rows=table, svg=svg[svg.find("<svg") :])


def _draw(data: dict[str, Any]) -> dict[str, bytes]:
    """Return a drawing of the speeds and of the parts of a step, as SVG and as PNG."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    measured = [each for each in data["variants"] if each["examples_per_second"]]
    names = [each["name"] for each in measured]
    figure = Figure(figsize=(10, 2.5 + 0.5 * len(names)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    speeds = [each["examples_per_second"] for each in measured]
    medians = [each["median"] for each in speeds]
    errors = [
        [each["median"] - each["min"] for each in speeds],
        [each["max"] - each["median"] for each in speeds],
    ]
    drawn = left.barh(names, medians, xerr=errors, color=_COLOURS["compute"], capsize=3)
    left.bar_label(drawn, [f"{median:,.0f}" for median in medians], padding=3)
    left.set(title="Speed", xlabel="examples/s (median, minimum to maximum)")
    ends = [0.0] * len(names)
    for part, colour in _COLOURS.items():
        values = [_step_parts(each)[part] for each in measured]
        drawn = right.barh(names, values, left=ends, color=colour, label=part)
        ends = [end + value for end, value in zip(ends, values, strict=True)]
    right.bar_label(drawn, [f"{end:,.2f}" for end in ends], padding=3)
    right.set(title="Where a step's time goes", xlabel="ms per step")
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=5)
    left.invert_yaxis()
    for axes in (left, right):
        axes.margins(x=0.2)
    drawings = {}
    # The same figures give the same SVG, whose texts stay texts.
    with mpl.rc_context({"svg.hashsalt": "distlaunch", "svg.fonttype": "none"}):
        for kind, metadata in (("svg", {"Date": None}), ("png", {})):
            stream = BytesIO()
            figure.savefig(stream, format=kind, dpi=120, metadata=metadata)
            drawings[kind] = stream.getvalue()
    return drawings


def _step_parts(variant: dict[str, Any]) -> dict[str, float]:
    """Return milliseconds of a step by part, and the rest as ``other``."""
    timing = variant["timing"] or {}
    parts = {name: 1e3 * timing.get(name, 0.0) for name in PARTS}
    total = 1e3 * (variant["step_seconds"] or 0.0)
    return parts | {"other": max(0.0, total - sum(parts.values()))}
