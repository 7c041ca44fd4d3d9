"""The page of a run or a job, and of several beside each other, as ``show --html`` writes it."""

from __future__ import annotations

import os
import sys
import time
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch import timestamps
from distlaunch.figures import FIGURES, Figures
from distlaunch.local.host_resources import this_machine
from distlaunch.local.run_folder import RunFolder
from distlaunch.paths import CHECKPOINTS, LOGS
from distlaunch.redaction import redact_words
from distlaunch.runs import display
from distlaunch.runs.record import installed_versions
from distlaunch.source_version import commit_of, has_changes
from distlaunch.summary import IN_WORDS, VALIDATION, epoch_table, facts_of
from distlaunch.ui.page import Chart, Link, Page, Series, step_bars

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from distlaunch.runs.view import RunView
    from distlaunch.summary import Epoch, Summary
    from distlaunch.ui.page import Part

FILE_NAME = "run.html"  # in the folder of a local run

_ELSEWHERE = ("tasks", "step time", "model")  # facts of a summary
_SPEED = "examples/s"
_STEP = "Where the time of a step goes"
_PRODUCTS = {"tensorflow": "TensorFlow", "keras": "Keras", "python": "Python"}
_MOST_TASKS = 16  # with a bar each


def default_path(views: Sequence[RunView]) -> Path:
    """Return where the page of runs is written: in the job folder of a local run, else here."""
    if len(views) > 1:
        return Path("runs.html")
    folder = views[0].folder
    return Path(folder) / FILE_NAME if folder else Path(Path(f"{views[0].id}.html").name)


def build(views: Sequence[RunView], path: Path) -> Page:
    """Return the page of a run or a job, or of several, as a file at a path."""
    return _page_of_one(views[0], path) if len(views) == 1 else _page_of_several(views, path)


def about_here(project: Path, name: str | None) -> dict[str, str]:
    """Return what a page has of the command that runs here and writes it."""
    commit = commit_of(project) or ""
    return {
        "project": name or project.absolute().name,
        "date": timestamps.clock_time(timestamps.format(time.time())),
        "command": " ".join(["distlaunch", *redact_words(sys.argv[1:])]),
        "machine": this_machine({}).describe(),
        "versions": _versions(installed_versions()),
        "commit": f"{commit} with changes" if commit and has_changes(project) else commit,
    }


def _page_of_one(view: RunView, path: Path) -> Page:
    summary, epochs = view.facts, _epochs(view.facts)
    result = {name: text for name, text in facts_of(summary) if name not in _ELSEWHERE}
    reason = f"{view.failure.reason}." if view.failure and view.failure.reason else ""
    configuration = [("", "value"), *display.leaves("job", view.configuration)]
    sections: dict[str, Sequence[Part]] = {
        "Why it failed": list(_failure(view, path)),
        "Curves": _curves({"": summary}),
        _STEP: list(_step(summary)),
        "Use of the machines": _use(view),
        "Result": [result],
        "Files": list(_files(view, path)),
        "Epochs": [epoch_table(epochs).rows] if epochs else [],
        "Configuration": [[(name, str(value)) for name, value in configuration]],
    }
    return Page(
        f"{_name(view)} · {view.kind} {view.id}",
        " ".join(filter(None, (reason, _lead(summary)))) or view.tasks,
        _about(view, path),
        sections,
        folded=("Epochs", "Configuration"),
        state=view.state,
    )


def _about(view: RunView, path: Path) -> dict[str, str]:
    facts = dict(display.facts(view))
    left_out = {
        view.kind,
        "name",
        "state",
        "figures",
        *(state.lower() for state, _ in view.timeline),
    }
    facts |= {name: Link.to_url(facts.get(name, "")) for name in ("link", "tensorboard")}
    return {
        "project": _name(view),
        "date": timestamps.clock_time(view.started or view.created),
        **{name: text for name, text in facts.items() if name not in left_out},
        "job folder": _linked(view, view.job_dir or "", path),
        "machine": str(view.configuration.get("machine", "")),
        "versions": _versions(view.configuration.get("versions") or {}),
        "hash of the code": str(view.code.get("files", "")),
    }


def _page_of_several(views: Sequence[RunView], path: Path) -> Page:
    names = ", ".join(dict.fromkeys(map(_name, views)))
    heads, *rows = display.listing(views).rows
    linked = [
        (Link.to_file(view.id, Path(view.folder or view.id, FILE_NAME), path), *row[1:])
        for view, row in zip(views, rows, strict=True)
    ]
    summaries = {view.id: view.facts for view in views}
    timings = {run: each.timing for run, each in summaries.items() if each.timing}
    sections: dict[str, Sequence[Part]] = {
        "Runs": [[heads, *linked], {run: _lead(each) for run, each in summaries.items()}],
        "Curves": _curves(summaries),
        _STEP: step_bars("Milliseconds of a step", timings),
        "What differs": [display.comparison(views[0], other).rows for other in views[1:]],
    }
    return Page(f"{names}: {len(views)} runs", "", about_here(Path.cwd(), names), sections)


def _lead(summary: Summary) -> str:
    """Return sentences on the best epoch, and on those after it."""
    best, epochs = _best(summary), _epochs(summary)
    if best is None:
        return ""
    epoch, name = best
    metrics = ", ".join(f"{each} {_number(value)}" for each, value in epoch.logs.items())
    text = f"Best epoch: {epoch.number:g} of {epochs[-1].number:g}, with {metrics}."
    end = f" After it {name} did not fall further; at the end it is "
    return text if epoch is epochs[-1] else f"{text}{end}{_number(epochs[-1].logs.get(name))}."


def _failure(view: RunView, path: Path) -> Iterator[Part]:
    if view.failure:
        yield view.failure.text(with_lines=True)
        log = view.logs.get(view.failure.task or "", "")
        yield {"log": log and _linked(view, log, path)}


def _curves(summaries: Mapping[str, Summary]) -> list[Part]:
    """Return a chart of each metric, beside its validation, of one run or of several."""
    runs = {run: _epochs(summary) for run, summary in summaries.items()}
    epochs = [epoch for each in runs.values() for epoch in each]
    xs = sorted({epoch.number or 0.0 for epoch in epochs})
    metrics = dict.fromkeys(name.removeprefix(VALIDATION) for e in epochs for name in e.logs)
    best = _best(summaries[""]) if "" in summaries else None
    mark = (best[0].number or 0.0, f"lowest {best[1]}") if best else None
    charts: list[Part] = []
    for metric in [*metrics, _SPEED]:
        lines = []
        for number, (run, each) in enumerate(runs.items()):
            for prefix, kind in (("", "training"), (VALIDATION, "validation")):
                values = {e.number: _value(e, prefix + metric) for e in each}
                if any(value is not None for value in values.values()):
                    name = f"{run} {kind if metric in metrics else ''}".strip() or metric
                    colour, is_dashed = (number, not prefix) if run else (bool(prefix), False)
                    ys = [values.get(x) for x in xs]
                    lines.append(Series(name, ys, int(colour), is_dashed and metric in metrics))
        can_be_log = "y" if "loss" in metric else ""
        if len(xs) > 1 and lines:
            at = mark if metric in metrics else None
            charts.append(Chart(metric, "epoch", metric, xs, lines, "lines", can_be_log, mark=at))
    return charts


def _step(summary: Summary) -> Iterator[Part]:
    timing, timed = summary.timing, [epoch for epoch in _epochs(summary) if epoch.timing]
    if timing is None:
        return
    yield f"{timing}."
    shares = [
        Series(name, [100 * e.timing.share(part) if e.timing else None for e in timed], number)
        for number, (part, name) in enumerate(IN_WORDS.items())
    ]
    if len(timed) > 1:
        xs = [epoch.number or 0.0 for epoch in timed]
        yield Chart("Shares of a step by epoch", "epoch", "%", xs, shares, style="stack")
    slowest = sorted(summary.task_timings, key=lambda task: -timing.slowest.get(task, 0.0))
    shown = slowest[:_MOST_TASKS] if len(slowest) > 1 else []
    texts = {task: f", last in {100 * timing.slowest.get(task, 0.0):.0f} %" for task in shown}
    timings = {task: summary.task_timings[task] for task in shown}
    title = "Milliseconds of a step, first the task that is most often last"
    yield from step_bars(title, timings, texts)


def _use(view: RunView) -> list[Part]:
    """Return the last figures of the tasks, which report them every minute."""
    attempt = RunFolder(Path(view.folder)).newest_attempt if view.folder else None
    by_task = attempt.events_of_kind(FIGURES) if attempt else {}
    newest = {task: events[-1] for task, events in by_task.items() if events} or view.figures
    return [f"In the last minute: {'; '.join(Figures(newest).parts())}."] if newest else []


def _files(view: RunView, path: Path) -> Iterator[Part]:
    if view.folder is None:
        return
    folder = Path(view.folder)
    known = {"model": view.facts.model, "checkpoints": str(folder / CHECKPOINTS)}
    known |= {"TensorBoard": str(folder / LOGS), "summary": str(folder / "summary.json")}
    known |= {f"log of {task}": log for task, log in view.logs.items()}
    yield {name: _linked(view, file, path) for name, file in known.items() if Path(file).exists()}
    if (folder / LOGS).exists():
        yield f"Open the curves in TensorBoard: distlaunch tensorboard {view.id}"


def _linked(view: RunView, file: str, page: Path) -> str:
    """Return the path of a file of a local run as a link, short if it is in the run's folder."""
    if view.folder is None:
        return file
    return Link.to_file(file.removeprefix(f"{view.folder}{os.sep}"), Path(file), page)


def _epochs(summary: Summary) -> list[Epoch]:
    return [epoch for epoch in summary.epochs if epoch.number is not None]


def _best(summary: Summary) -> tuple[Epoch, str] | None:
    """Return the epoch with the lowest loss of the validation, or else of the training."""
    for name in (f"{VALIDATION}loss", "loss"):
        losses = [(epoch.logs.get(name), epoch) for epoch in _epochs(summary)]
        known = [(loss, epoch) for loss, epoch in losses if loss is not None and isfinite(loss)]
        if known:
            return min(known, key=lambda each: each[0])[1], name
    return None


def _value(epoch: Epoch, name: str) -> float | None:
    return epoch.examples_per_second if name == _SPEED else epoch.logs.get(name)


def _name(view: RunView) -> str:
    job = view.configuration.get("job") or {}
    return str(view.display_name or job.get("name") or Path.cwd().name)


def _versions(versions: Mapping[str, str]) -> str:
    names = {name: _PRODUCTS.get(name.removesuffix("-cpu"), name) for name in versions}
    return ", ".join(f"{names[name]} {version}" for name, version in versions.items())


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
