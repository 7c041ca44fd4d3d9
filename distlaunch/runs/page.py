"""The page of a run or a job, and of several beside each other, as ``show --html`` writes it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch import timestamps
from distlaunch.figures import FIGURES, Figures
from distlaunch.local.run_folder import RunFolder
from distlaunch.paths import CHECKPOINTS, LOGS
from distlaunch.runs import display
from distlaunch.summary import IN_WORDS, VALIDATION, Summary, epoch_table, facts_of
from distlaunch.text import percent
from distlaunch.ui.page import Chart, Link, Page, Series, step_bars

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from distlaunch.runs.view import RunView
    from distlaunch.summary import Epoch
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


def _page_of_one(view: RunView, path: Path) -> Page:
    summary = view.facts
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
        "Epochs": [epoch_table(summary).rows] if summary.epochs else [],
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
        "versions": describe_versions(view.configuration.get("versions") or {}),
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
    return Page(f"{names}: {len(views)} runs", "", {}, sections)


def _lead(summary: Summary) -> str:
    """Return sentences on the best epoch, and on those after it."""
    best, name = _best(summary)
    if best is None:
        return ""
    last = summary.epochs[-1]
    metrics = ", ".join(f"{each} {_number(value)}" for each, value in best.logs.items())
    text = f"Best epoch: {best.number:g} of {last.number:g}, with {metrics}."
    end = f" After it {name} did not fall further; at the end it is {_number(last.logs.get(name))}."
    return text if best is last else text + end


def _failure(view: RunView, path: Path) -> Iterator[Part]:
    if view.failure:
        yield view.failure.text(with_lines=True)
        log = view.logs.get(view.failure.task or "", "")
        yield {"log": log and _linked(view, log, path)}


def _curves(summaries: Mapping[str, Summary]) -> list[Part]:
    """Return a chart of each metric, beside its validation, of one run or of several."""
    xs = sorted({epoch.number for each in summaries.values() for epoch in each.epochs})
    charts: dict[str, list[Series]] = {}
    for number, (run, summary) in enumerate(summaries.items()):
        speeds = {e.number: speed for e in summary.epochs if (speed := e.examples_per_second)}
        for metric, curves in (summary.curves | {_SPEED: {"": speeds}}).items():
            for name, values in curves.items():
                kind = {metric: "training", "": metric}.get(name, "validation")
                colour = number if run else int(kind == "validation")
                ys = [values.get(x) for x in xs]
                line = Series(f"{run} {kind}".strip(), ys, colour, bool(run) and kind == "training")
                charts.setdefault(metric, []).extend([line] if values else [])
    best, name = _best(summaries.get("", Summary()))
    mark = (best.number, f"lowest {name}") if best else None
    return [
        Chart(
            *(metric, "epoch", metric, xs, lines),
            logarithmic="y" if "loss" in metric else "",
            mark=None if metric == _SPEED else mark,
        )
        for metric, lines in charts.items()
        if lines and len(xs) > 1
    ]


def _step(summary: Summary) -> Iterator[Part]:
    timing, timed = summary.timing, [epoch for epoch in summary.epochs if epoch.timing]
    if timing is None:
        return
    yield f"{timing}."
    shares = [
        Series(name, [100 * e.timing.share(part) if e.timing else None for e in timed], number)
        for number, (part, name) in enumerate(IN_WORDS.items())
    ]
    if len(timed) > 1:
        xs = [epoch.number for epoch in timed]
        yield Chart("Shares of a step by epoch", "epoch", "%", xs, shares, style="stack")
    slowest = sorted(summary.task_timings, key=lambda task: -timing.slowest.get(task, 0.0))
    shown = slowest[:_MOST_TASKS] if len(slowest) > 1 else []
    texts = {task: f", last in {percent(timing.slowest.get(task, 0.0))}" for task in shown}
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
    links = {name: _linked(view, file, path) for name, file in known.items()}
    yield {name: link for name, link in links.items() if isinstance(link, Link)}
    if (folder / LOGS).exists():
        yield f"Open the curves in TensorBoard: distlaunch tensorboard {view.id}"


def _linked(view: RunView, file: str, page: Path) -> str:
    """Return the path of a file of a local run as a link, short if it is in the run's folder."""
    if view.folder is None:
        return file
    return Link.to_file(file.removeprefix(f"{view.folder}{os.sep}"), Path(file), page)


def _best(summary: Summary) -> tuple[Epoch | None, str]:
    """Return the epoch with the lowest loss of the validation, or else of the training."""
    validated = f"{VALIDATION}loss"
    best = summary.best(validated)
    return (best, validated) if best else (summary.best("loss"), "loss")


def _name(view: RunView) -> str:
    job = view.configuration.get("job") or {}
    return str(view.display_name or job.get("name") or Path.cwd().name)


def describe_versions(versions: Mapping[str, str]) -> str:
    """Return versions in words."""
    names = {name: _PRODUCTS.get(name.removesuffix("-cpu"), name) for name in versions}
    return ", ".join(f"{names[name]} {version}" for name, version in versions.items())


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
