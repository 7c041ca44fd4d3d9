"""The page of a forecast: money and time of each cluster, with their ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch.price.forecast import to_json, to_text
from distlaunch.text import Table
from distlaunch.ui.page import Chart, Page, Series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlaunch.price.forecast import Shape

_EXPLAINED = (
    "In brackets are the lowest and the highest values that are likely. No other cluster here is "
    "both faster and cheaper than one with *."
)


def build(shapes: Sequence[Shape], refusals: Sequence[str]) -> Page:
    """Return the page of the clusters of a forecast, and why others have none."""
    table, *notes = to_text(shapes)
    fastest = min(shapes, key=lambda shape: shape.hours.mid)
    lead = [f"Fastest: {_described(fastest)}."]
    priced = [shape for shape in shapes if shape.money]
    if priced:
        cheapest = min(priced, key=lambda shape: shape.money.mid if shape.money else 0.0)
        lead.append(f"Cheapest: {_described(cheapest)}.")
    return Page(
        f"Forecast: time and money of {shapes[0].epochs} epochs",
        " ".join(lead),
        {},
        {
            "Time and money": [_chart(shapes)] if priced else [],
            "Clusters": [
                _EXPLAINED,
                table.rows if isinstance(table, Table) else (),
            ],
            "Where the figures come from": [str(note) for note in notes if note],
            "Without a forecast": list(refusals),
        },
        folded=["Where the figures come from"],
        data=to_json(shapes, refusals),
    )


def _chart(shapes: Sequence[Shape]) -> Chart:
    """Return money by time, each with its range; clusters whose price is unknown are left out."""
    points = [(shape, shape.hours, shape.money) for shape in shapes if shape.money]
    points.sort(key=lambda point: point[1].mid)
    labels = [str(shape.workers) for shape, *_ in points]
    ranges = [(hours.low, hours.high, money.low, money.high) for _, hours, money in points]
    series = []
    for number, machine in enumerate(dict.fromkeys(str(each.target) for each in shapes)):
        ys = [money.mid if str(each.target) == machine else None for each, _, money in points]
        series += [Series(machine, ys, number, False, labels, ranges)] if any(ys) else []
    currency = next((shape.cost.currency for shape, *_ in points if shape.cost), "")
    title = "Each point is a cluster with its number of tasks; the lines are the likely ranges"
    xs = [hours.mid for _, hours, _ in points]
    return Chart(title, "hours", currency, xs, series, "points", "xy")


def _described(shape: Shape) -> str:
    return f"{shape.workers} x {shape.target}, {shape.describe_total()}"
