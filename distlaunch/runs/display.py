"""Runs and jobs as text: a list, one whole, and what differs between two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlaunch.figures import Figures
from distlaunch.source_version import describe_commit
from distlaunch.summary import (
    PARTS,
    VALIDATION,
    as_number,
    describe,
    is_better_low,
    milliseconds,
)
from distlaunch.text import Table, duration, plural
from distlaunch.timestamps import ago, clock_time
from distlaunch.ui import chart
from distlaunch.ui.console import GREEN, RED, coloured
from distlaunch.ui.states import coloured_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distlaunch.runs.fetch import DownloadProgress
    from distlaunch.runs.view import RunView
    from distlaunch.summary import Summary

_BAR_WIDTH = 30  # characters
_MOST_METRICS = 3  # in a list
_ABSENT = "-"
_IS_BETTER_LOW = {"examples_per_second": False, "seconds": True, "timing": True}
_HASHES, _SHOWN_OF_HASH = ("code.files", "code.requirements"), 12  # characters
# What always differs between two runs, or follows from what else does.
_NOT_COMPARED = (
    "id",
    "folder",
    "started",
    "ended",
    "timeline",
    *("name", "display_name", "created", "waited", "console", "tensorboard", "endpoint", "failure"),
    "command",
    "job_dir",
    *("bytes", "cost", "figures", "logs", "web_access"),
    "error",
    "summary",
)


def listing(runs: Sequence[RunView]) -> Table:
    """Return a table of local runs, one per line."""
    heads = ("RUN", "STATE", "TASKS", "STARTED", "TOOK", "SIZE", "LAST METRICS")
    rows = [heads, *map(_row, runs)]
    size, tasks, metrics = heads.index("SIZE"), heads.index("TASKS"), len(heads) - 1
    return Table(rows, flush_left=True, optional=(size, tasks), folded=(metrics,))


def job_listing(jobs: Sequence[RunView]) -> Table:
    """Return a table of jobs, one per line."""
    heads: tuple[str, ...] = ("JOB", "NAME", "STATE", "CREATED", "TOOK", "COST")
    name, took = heads.index("NAME"), heads.index("TOOK")
    rows = [heads, *map(_job_row, jobs)]
    capacities = [_capacity(job) for job in jobs]
    if any(capacities):
        rows = [(*row, text) for row, text in zip(rows, ["MACHINES OF", *capacities], strict=True)]
    return Table(rows, flush_left=True, optional=(took,), folded=(name,))


def facts(view: RunView) -> list[tuple[str, str]]:
    """Return what is known of a run or a job, without its summary, as names and texts."""
    named = [
        (view.kind, view.id),
        ("name", view.display_name or ""),
        ("state", coloured_state(view.state) + (f" ({view.error})" if view.error else "")),
        ("tasks", view.tasks),
        ("trials", ", ".join(f"{count} {state}" for state, count in view.trials.items())),
        *((state.lower(), f"{clock_time(time)} ({ago(time)})") for state, time in view.timeline),
        ("waited", "" if view.waited is None else duration(view.waited)),
        ("took", "" if view.seconds is None else duration(view.seconds)),
        ("machines of", _capacity(view)),
        ("cost", _cost(view)),
        ("figures", "; ".join(Figures(view.figures).parts())),
        ("command", view.command),
        ("program", " ".join(" ".join(view.configuration.get("program", [])).split())),
        ("image", view.image or ""),
        ("commit", describe_commit(view.code.get("commit"), view.code.get("has_changes"))),
        ("size", size(view.bytes) if view.bytes is not None else ""),
        ("job folder", view.job_dir or ""),
        ("endpoint", view.endpoint or ""),
        ("link", "" if view.endpoint else view.console or ""),
        ("tensorboard", "" if view.endpoint else view.tensorboard or ""),
        *(("shell", f"{task}  {uri}") for task, uri in view.web_access.items()),
    ]
    return [(name, text) for name, text in named if text]


def whole(view: RunView, columns: int | None = None) -> list[str | Table]:
    """Return all about a run or a job: facts, its summary, and a chart of its metrics by epoch.

    `columns` are those of the terminal, if it is shown on one.
    """
    parts: list[str | Table] = [str(Table(facts(view), flush_left=True))]
    if view.failure and (text := view.failure.text(with_lines=True)):
        parts += ["", text]
    if view.summary:
        parts += ["", *describe({k: v for k, v in view.summary.items() if k != "tasks"})]
    return [*parts, *_charts(view.facts, columns)]


def status_line(view: RunView) -> str:
    """Return a job's state, time, trials and cost."""
    ran = "" if view.seconds is None else f"ran {duration(view.seconds)}"
    trials = ", ".join(f"{count} trials {state}" for state, count in view.trials.items())
    parts = (f"{view.id} {coloured_state(view.state)}", ran, trials, _cost(view), view.error)
    return " · ".join(filter(None, parts))


def differences(one: RunView, other: RunView) -> list[tuple[str, Any, Any]]:
    """Return name and both values of what differs, None where one has none."""
    first, second = dict(_comparable(one)), dict(_comparable(other))
    names = dict.fromkeys([*first, *second])
    return [
        (name, first.get(name), second.get(name))
        for name in names
        if first.get(name) != second.get(name)
    ]


def comparison(one: RunView, other: RunView) -> Table:
    """Return a table of what differs between two, with the change of numbers."""
    rows = [_difference(*each) for each in differences(one, other)]
    heads = ("", one.id, other.id, "change")
    return Table([heads, *rows], flush_left=True, folded=(0, 1, 2))


def _difference(name: str, one: Any, other: Any) -> tuple[str, str, str, str]:
    """Return a row: a change is green or red if it is known to be for the better or worse."""
    before, after, change = as_number(one), as_number(other), ""
    if before and after is not None:
        percent = 100 * (after - before) / abs(before)
        change = f"{percent:+,.1f} %"
        of_metric = is_better_low(name.partition("metrics.")[2])
        is_low = _IS_BETTER_LOW.get(name.partition(".")[0], of_metric)
        if is_low is not None:
            change = coloured(change, GREEN if (percent < 0) is is_low else RED)
    return name.removeprefix("configuration."), _text(name, one), _text(name, other), change


def progress_bar(progress: DownloadProgress) -> str:
    """Return a download as a line, such as ``[##----] 33 %  1 MB of 3 MB, 1 of 4 files``."""
    share = progress.bytes / progress.all_bytes if progress.all_bytes else 1.0
    bar = ("#" * int(_BAR_WIDTH * share)).ljust(_BAR_WIDTH, "-")
    amounts = f"{size(progress.bytes)} of {size(progress.all_bytes)}"
    files = f"{progress.files} of {plural(progress.all_files, 'file')}"
    return f"[{bar}] {int(100 * share)} %  {amounts}, {files}"


def size(count: int) -> str:
    """Return bytes such as ``1.2 MB``."""
    amount, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while amount >= 1000 and len(units) > 1:
        amount, units = amount / 1000, units[1:]
    return f"{amount:.3g} {units[0]}"


def _job_row(view: RunView) -> tuple[str, ...]:
    from distlaunch.price import describe_amount

    return (
        view.id,
        view.display_name or "",
        coloured_state(view.state),
        ago(view.created),
        duration((view.waited or 0.0) + (view.seconds or 0.0)),
        _ABSENT if view.is_emulated or not view.cost else describe_amount(view.cost, is_short=True),
    )


def _row(view: RunView) -> tuple[str, ...]:
    metrics = [f"{name} {value:.4f}" for name, value in view.facts.metrics.items()]
    return (
        view.id,
        coloured_state(view.state),
        view.tasks,
        ago(view.started),
        duration(view.seconds) if view.seconds is not None else "",
        size(view.bytes or 0),
        " ".join(metrics[-_MOST_METRICS:]),
    )


def _charts(summary: Summary, columns: int | None) -> Iterator[str]:
    """Yield a chart of each metric, beside its validation, over the epochs, and the best one."""
    for metric, curves in summary.curves.items():
        points = {name: [*values.items()] for name, values in curves.items()}
        is_log = is_better_low(metric) is True
        if drawn := chart.lines(points, columns=columns, x_name="epoch", is_log=is_log):
            yield f"\n{drawn}"
            validated = f"{VALIDATION}{metric}" if f"{VALIDATION}{metric}" in curves else metric
            if best := summary.best(validated):
                yield f"best {validated} {best.logs[validated]:.4f}, epoch {best.number:.0f}"


def _comparable(view: RunView) -> Iterator[tuple[str, Any]]:
    for name, value in view.as_json().items():
        if name not in _NOT_COMPARED:
            yield from leaves(name, value)
    summary = view.facts
    yield from leaves("metrics", summary.metrics)
    for name in ("global_batch", "steps", "examples_per_second", "restarts", "data"):
        yield from leaves(name, getattr(summary, name))
    for name in ("total", *PARTS) if summary.timing else ():
        yield f"timing.{name}", getattr(summary.timing, name)


def leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values in nested dicts with their paths; lists are one text."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(f"{name}.{key}", item)
    elif isinstance(value, (list, tuple)):
        if all(not isinstance(item, (dict, list)) for item in value):
            yield name, " ".join(map(str, value))
        else:
            for number, item in enumerate(value):
                yield from leaves(f"{name}.{number}", item)
    elif value is not None:
        yield name, value


def _text(name: str, value: object) -> str:
    """Return a value that differs as text: times in ms, and of hashes the first characters."""
    if value is None:
        return _ABSENT
    if isinstance(value, float):
        if name == "seconds":
            return duration(value)
        return milliseconds(value) if name.startswith("timing.") else f"{value:.5g}"
    return str(value)[: _SHOWN_OF_HASH if name in _HASHES else None]


def _capacity(view: RunView) -> str:
    """Return whose machines a job has, if they are not its own."""
    if view.persistent_resource:
        return f"persistent resource {view.persistent_resource}"
    return ", ".join(f"reservation {name}" for name in view.reservations)


def _cost(view: RunView) -> str:
    from distlaunch.price import describe_amount

    cost = view.cost
    if cost and view.is_emulated:
        return "nothing: an emulator"
    if view.persistent_resource:
        return f"none: billed with persistent resource {view.persistent_resource}"
    if cost is None:
        return ""
    so_far = "" if view.ended else " so far"
    an_hour = f"{cost['an_hour']:.3g} {cost['currency']} an hour"
    return f"{describe_amount(cost)}{so_far} at {an_hour} ({', '.join(cost['sources'])})"
