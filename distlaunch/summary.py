"""The summary that a job's program leaves behind, as text for a person."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from distlaunch.job.model import TASK_TYPES, describe_tasks
from distlaunch.text import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_VALIDATION = "val_"
_PARTS = {  # of a step, as `timing` of summary.json names them
    "compute": "compute",
    "exchange": "exchange",
    "wait": "waiting for the slowest task",
    "input": "input",
}


def describe(summary: Mapping[str, object], *, with_epochs: bool = True) -> str:
    """Return a few lines of facts and, unless they were shown before, a table of the epochs.

    What is missing in ``summary.json`` or of another kind is left out.
    """
    facts = [(name, text) for name, text in _facts(summary) if text]
    width = max((len(name) for name, _ in facts), default=0)
    lines = [f"{name.ljust(width)}  {text}" for name, text in facts]
    epochs = epochs_of(summary)
    if epochs and with_epochs:
        lines.append(table(_rows(epochs)))
    return "\n".join(lines)


def _facts(summary: Mapping[str, object]) -> list[tuple[str, str]]:
    return [
        ("tasks", _tasks(summary.get("tasks"))),
        ("global batch", _count(summary.get("global_batch"))),
        ("steps per epoch", _count(summary.get("steps_per_epoch"))),
        ("examples per epoch", _examples(summary)),
        ("speed", _count(summary.get("examples_per_second"), "{} examples/s")),
        ("step time", describe_timing(summary.get("timing"))),
        ("resumed", _count(summary.get("resumed_from"), "from step {}")),
        ("restarts", _count(summary.get("restarts"))),
        ("model", _text(summary.get("model"))),
    ]


def describe_timing(timing: object) -> str:
    """Return where the time of steps went, such as ``2.5 ms: compute 80 %, exchange 20 %``."""
    if not isinstance(timing, dict) or not (total := as_number(timing.get("total"))):
        return ""
    parts = [(text, as_number(timing.get(name)) or 0.0) for name, text in _PARTS.items()]
    shares = ", ".join(f"{text} {part / total:.0%}" for text, part in parts if part >= total / 200)
    return f"{1e3 * total:.3g} ms: {shares}".replace("%", " %")


def _tasks(names: object) -> str:
    """Return the tasks, such as ``chief + 2 workers``."""
    if not isinstance(names, list):
        return ""
    kinds = Counter(str(name).partition(":")[0] for name in names)
    return describe_tasks([kinds[kind] for kind in TASK_TYPES])


def _examples(summary: Mapping[str, object]) -> str:
    trained = _count(summary.get("examples_per_epoch"))
    validated = _count(summary.get("validation_examples"), " (and {} for validation)")
    return trained + validated if trained and validated != " (and 0 for validation)" else trained


def epochs_of(summary: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Return the records of epochs in ``summary.json``, without what is none."""
    value = summary.get("epochs")
    listed = value if isinstance(value, list) else []
    return [epoch for epoch in listed if isinstance(epoch, dict) and "epoch" in epoch]


def _rows(epochs: Sequence[Mapping[str, object]]) -> list[list[str]]:
    """Return a head and a row an epoch: its loss and metrics, each beside its validation."""
    logs = [logs_of(epoch) for epoch in epochs]
    names = list(dict.fromkeys(name for log in logs for name in log))
    # A metric is beside its validation, at the place of the first of both.
    metrics = list(dict.fromkeys(name.removeprefix(_VALIDATION) for name in names))
    columns = sorted(names, key=lambda name: metrics.index(name.removeprefix(_VALIDATION)))
    head = ["epoch", "step", *columns, "examples/s"]
    return [head] + [
        [
            _count(epoch["epoch"]),
            _count(epoch.get("step")),
            *(_metric(log.get(name)) for name in columns),
            _count(epoch.get("examples_per_second")),
        ]
        for epoch, log in zip(epochs, logs, strict=True)
    ]


def logs_of(epoch: Mapping[str, object]) -> Mapping[str, object]:
    """Return the metrics that have one number; those with a number a class have no column."""
    logs = epoch.get("logs")
    items = logs.items() if isinstance(logs, dict) else ()
    return {name: value for name, value in items if not isinstance(value, list)}


def _metric(value: object) -> str:
    number = as_number(value)
    return "" if number is None else f"{number:.4f}"


def _count(value: object, template: str = "{}") -> str:
    number = as_number(value)
    return "" if number is None else template.format(f"{number:,.0f}")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def as_number(value: object) -> float | None:
    """Return a reported value as a number; None if it is none or too large."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
