"""Events of a running job → what a person or a script sees."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from distlaunch.events import (
    JobChanged,
    JobFailed,
    Notice,
    TaskChanged,
    TaskLines,
    Trained,
    Waiting,
)
from distlaunch.figures import FIGURES, Figures
from distlaunch.job.tasks import TASK_TYPES
from distlaunch.summary import as_number, describe
from distlaunch.text import duration
from distlaunch.timestamps import local_time
from distlaunch.ui.console import RED, YELLOW
from distlaunch.ui.shown_errors import ShownErrors
from distlaunch.ui.states import coloured_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from typing_extensions import Self

    from distlaunch.events import Event, Level
    from distlaunch.ui.console import Console

_LOOK = 0.2  # seconds that a frame of the spinner is shown
_FRAMES = "|/-\\"  # of the spinner
_CELLS = 12  # characters of the bar
_TOTALS = ("epochs", "steps_per_epoch")  # of a plan, whose product is all steps
_IN_SIGHT = 15  # lines after a task's last, with which it is still on the screen
_SILENCE = 3.0  # seconds without a line of a running job, after which that is shown
_NEW_FIGURES = 120.0  # seconds in which figures have the cost that the job has now
_WAITING = {  # what is shown in a state in which a job writes no lines
    "QUEUED": "queued",
    "PENDING": "waiting for machines",
    "CANCELLING": "cancelling",
    "SUCCEEDED": "waiting for the last lines of the log",
    "FAILED": "waiting for the last lines of the log and the error",
    "CANCELLED": "waiting for the last lines of the log",
}
_LEVELS: dict[str, Level] = {
    "FAILED": "error",
    "EXPIRED": "error",
    "PARTIALLY_SUCCEEDED": "warning",
    "CANCELLED": "warning",
}
_SEVERITY_COLOURS = {"WARNING": YELLOW, **dict.fromkeys(("ERROR", "CRITICAL", "ALERT"), RED)}


class ProgressView:
    """Shows what happens to a job; the first task is the primary."""

    shows_lines = True  # of tasks
    shows_result = True  # the summary or the folder of a job that has succeeded
    shows_times = False  # of lines

    def __init__(self, console: Console, tasks: Sequence[str]) -> None:
        self.console = console
        self.is_live = True  # whether the job is followed
        self.cost: Callable[[], str] = lambda: ""  # of the job so far, in words
        self._primary = tasks[0]
        self._progress, self._progress_text = Progress(), ""
        self._figures, self._figures_text = Figures(), ""
        self._is_tuned = "/" in tasks[0]
        names = [name.rpartition("/")[2] for name in tasks]  # without a trial
        self._training_tasks = sum(name.startswith(("chief", "worker")) for name in names)
        self._summary: Mapping[str, object] | None = None
        self._state = ""
        self._waiting = ""
        self._waiting_since = 0.0
        self._line_at = 0.0  # when there was a line or a state
        self._errors = ShownErrors()
        self._shown = 0  # lines of tasks
        self._shown_at: dict[str, int] = {}  # the number of each task's last line
        self._width = max(map(len, tasks))
        self._prefixes: dict[str, str] = {}
        for task in tasks:
            self._prefix(task)

    def handle(self, event: Event) -> None:
        """Show an event."""
        if isinstance(event, TaskLines):
            self._show_lines(event)
            return
        self._show_same()
        if isinstance(event, Waiting):
            self._wait_for(event.text)
        elif isinstance(event, Notice):
            self.console.log(event.text, event.level)
        elif isinstance(event, TaskChanged):
            detail = f" ({event.detail})" if event.detail else ""
            self.console.log(f"{event.task} {event.state}{detail}", "debug")
        elif isinstance(event, JobChanged):
            self._log_state(event)
        elif isinstance(event, JobFailed):
            text = event.report.text(with_lines=event.shows_lines, with_task=event.names_task)
            if text:
                self.console.log(text, "error")
        elif isinstance(event, Trained):
            self._take_progress(event)

    def submitted(self, facts: Mapping[str, str | None]) -> None:
        """Show that a job was submitted; the console has it already."""

    def is_in_sight(self, task: str) -> bool:
        """Return whether the last line of a task is near the end of what stderr's reader sees."""
        lines_after = self._shown - self._shown_at.get(task, -_IN_SIGHT)
        return self.shows_lines and self.console.is_one_stream and lines_after < _IN_SIGHT

    def stream(self, events: Iterable[Event]) -> None:
        """Show events as they come."""
        for event in events:
            self.handle(event)

    def wait(self, seconds: float) -> None:
        """Let time pass, and turn the spinner."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK))
            self.spin()

    def spin(self) -> None:
        """Turn the spinner, if one is shown."""
        now = time.monotonic()
        if self._waiting:
            self._turn(f"{self._waiting} ·", now - self._waiting_since)
        elif self._state == "RUNNING" and self.shows_lines and not self._progress_text:
            if now - self._line_at >= _SILENCE:
                self._turn("running · no line for", now - self._line_at)
            else:
                self.console.progress("")

    def _turn(self, text: str, seconds: float) -> None:
        frame = _FRAMES[int(seconds / _LOOK) % len(_FRAMES)]
        self.console.progress(f"{frame} {text} {seconds:.0f} s")

    def summarise(self, summary: Mapping[str, object] | None = None, *, logs: str = "") -> None:
        """Show the program's ``summary.json``, or that in its last event, or where the logs are."""
        self._wait_for("")
        summary = summary or self._summary
        if summary:  # the task's own lines, once shown, have had its epochs
            self.console.draw(*describe(summary, with_epochs=not self._shown))
        else:
            self.console.log(f"done; the tasks' output is in {logs}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Take the progress line away, unless this is an interruption."""
        self._show_same()
        if kind is not KeyboardInterrupt:
            self._wait_for("")

    def _show_lines(self, event: TaskLines) -> None:
        """Show a task's lines; while a job is followed, those of an error of another task once."""
        is_task = event.task.rpartition("/")[2].partition(":")[0] in TASK_TYPES
        is_all = self.shows_times or not self.is_live or not is_task
        text = event.text if is_all else self._errors.new_lines(event.task, event.text)
        if text == event.text:
            self._show_same()
        if text:
            self._shown += text.count("\n")
            self.console.lines(self._prefix(event.task), self._painted(event, text))
        if event.text:
            self._line_at = time.monotonic()
            self._shown_at[event.task] = self._shown

    def _show_same(self) -> None:
        """Show once which tasks have printed the error that was shown."""
        if tasks := self._errors.take_same():
            self.console.lines(self._prefix(tasks), "the same error\n")

    def _painted(self, event: TaskLines, text: str) -> str:
        """Return lines in the colour of their severity, behind their time if that is shown."""
        colour = _SEVERITY_COLOURS.get(event.severity)
        time = f"{local_time(event.time)} " if self.shows_times and event.time else ""
        if colour is None and not time:
            return text
        lines = text.removesuffix("\n").split("\n")
        shown = (self.console.painted(line, colour) if colour else line for line in lines)
        return "".join(f"{time}{line}\n" for line in shown)

    def _prefix(self, task: str) -> str:
        """Return the prefix of a task's lines; an unknown task gets one, too."""
        if task not in self._prefixes:
            name = task.ljust(self._width)
            self._prefixes[task] = self.console.prefix(name, len(self._prefixes))
        return self._prefixes[task]

    def _log_state(self, event: JobChanged) -> None:
        """Log a state once, with how long the one before it took, and an error when it comes."""
        before, self._state = self._state, event.state
        level = _LEVELS.get(event.state, "info")
        took = "" if event.after is None else f" ({before} took {duration(event.after)})"
        if event.state != before:
            self.console.log(f"state {coloured_state(event.state)}{took}", level)
        if event.error:
            self.console.log(f"{event.state}: {event.error}", level)
        self._line_at = time.monotonic()
        self._wait_for(_WAITING.get(event.state, ""))

    def _show_training(self, event: Mapping[str, object]) -> None:
        if event["event"] == "ready":
            self._figures_text = ""  # of an attempt before
            self._wait_for("building the first step")
        elif event["event"] == "step":
            self._waiting = ""
        progress = self._progress.update(event)
        self._progress_text = " · ".join(filter(None, [progress, self._figures_text]))
        if not self._waiting:
            self.console.progress(self._progress_text)
        summary = event.get("summary")
        if isinstance(summary, dict):
            self._summary = summary

    def _take_progress(self, event: Trained) -> None:
        if event.event["event"] == FIGURES:
            self._take_figures(event)
        # Trials run side by side: their progress is their figures alone.
        if self._is_tuned:
            self.console.progress(self._figures_text)
        elif event.task == self._primary:
            self._show_training(event.event)

    def _take_figures(self, event: Trained) -> None:
        """Show the newest figures in the progress line, or elsewhere in a line a minute."""
        if not self._figures.add(event.task, event.event, self._training_tasks):
            return
        is_in_progress = self.is_live and self.console.has_progress
        is_new = time.time() - (as_number(event.event.get("time")) or 0) < _NEW_FIGURES
        cost = self.cost() if is_new else ""
        with_speed = self._is_tuned or not is_in_progress
        parts = [*filter(None, [*self._figures.parts(with_speed=with_speed), cost])]
        self._figures_text = " · ".join(parts)
        if parts and not is_in_progress:
            self.console.log(f"figures: {'; '.join(parts)}")

    def _wait_for(self, text: str) -> None:
        """Show a spinner with this text, or none."""
        if text != self._waiting:
            self._waiting_since = time.monotonic()
        self._waiting = text
        if text:
            self.spin()
        else:
            self.console.progress("")


class JsonProgressView(ProgressView):
    """Shows what happens as JSON on stdout, an object a line; notices stay on stderr.

    Objects have an ``event``: ``line`` (task, text, and time and severity where they are known),
    ``state`` (state, seconds in the one before, error), ``task`` (task, state, detail), ``trained``
    (task, data), ``failure`` (task, reason, remedy, lines), and at the end ``summary`` (summary).
    """

    def handle(self, event: Event) -> None:
        if isinstance(event, TaskLines):
            stamp = {"time": event.time, "severity": event.severity} if event.time else {}
            for text in event.text.removesuffix("\n").split("\n") if event.text else ():
                self._emit("line", task=event.task, text=text, **stamp)
        elif isinstance(event, JobChanged):
            self._emit("state", state=event.state, after=event.after, error=event.error or None)
        elif isinstance(event, TaskChanged):
            self._emit("task", task=event.task, state=event.state, detail=event.detail)
        elif isinstance(event, Trained):
            self._emit("trained", task=event.task, data=dict(event.event))
        elif isinstance(event, JobFailed):
            self._emit("failure", **asdict(event.report))
            super().handle(event)
        else:
            super().handle(event)

    def submitted(self, facts: Mapping[str, str | None]) -> None:
        self._emit("submitted", **facts)

    def summarise(self, summary: Mapping[str, object] | None = None, *, logs: str = "") -> None:  # noqa: ARG002
        if summary:
            self._emit("summary", summary=dict(summary))

    def _emit(self, kind: str, **fields: object) -> None:
        self.console.result(json.dumps({"event": kind, **fields}, ensure_ascii=False))


def job_view(console: Console, tasks: Sequence[str], *, as_json: bool) -> ProgressView:
    """Return the view of a job's events, for a person or a script."""
    return (JsonProgressView if as_json else ProgressView)(console, tasks)


class Progress:
    """Follows the events of one task's program."""

    def __init__(self) -> None:
        self._plan: dict[str, float] = {}
        self._first: tuple[float, float] | None = None  # step and time of the first step seen
        self._rate: float | None = None  # examples a second
        self._text = ""

    def update(self, event: Mapping[str, object]) -> str:
        """Return the line after an event; an event that cannot be understood changes nothing."""
        kind, numbers = event["event"], _finite_numbers(event)
        if kind == "ready":
            self._plan = numbers
            self._first = None
        elif kind == "epoch":
            self._rate = numbers.get("examples_per_second", self._rate)
        elif kind == FIGURES and "global_batch" not in self._plan:  # the cloud has no other events
            self._plan = {name: numbers[name] for name in _TOTALS if name in numbers}
            self._rate = numbers.get("examples_per_second", self._rate)
            self._text = self._line(numbers, None) if "step" in numbers else ""
        elif kind == "step" and "step" in numbers:
            self._text = self._line(numbers, as_number(event.get("loss")))
        return self._text

    def _line(self, numbers: Mapping[str, float], loss: float | None) -> str:
        step, total = numbers["step"], self._total(*_TOTALS)
        speed = self._steps_per_second(step, numbers.get("time"))
        parts: list[str] = []  # the first ones fit into any terminal
        if speed and 0 <= step < total:
            parts.append(f"{duration((total - step) / speed)} left")
        if "epoch" in numbers:
            parts.append(f"epoch {numbers['epoch']:.0f}{_of(self._total('epochs'))}")
        parts.append(f"step {step:.0f}{_of(total)}")
        if loss is not None:
            parts.append(f"loss {loss:.4g}")
        rate = self._rate or self._plan.get("global_batch", 0) * speed
        if rate:
            parts.append(f"{rate:,.0f} examples/s")
        bar = f"{_bar(step / total)} " if total else ""
        return bar + " · ".join(parts)

    def _total(self, *factors: str) -> float:
        """Return a product of the plan's numbers, 0 where one of them is not known."""
        return math.prod(self._plan.get(name, 0) for name in factors)

    def _steps_per_second(self, step: float, time: float | None) -> float:
        """Return the speed since the first step, which itself takes long; 0 if unknown."""
        if time is None:
            return 0.0
        if self._first is None:
            self._first = (step, time)
        steps, seconds = step - self._first[0], time - self._first[1]
        return max(steps / seconds, 0.0) if seconds > 0 and math.isfinite(steps / seconds) else 0.0


def _bar(part: float) -> str:
    """Return a bar of which a part is full."""
    return f"[{'#' * int(_CELLS * min(max(part, 0), 1)):-<{_CELLS}}]"


def _of(total: float) -> str:
    """Return how many there are in all, as ``/5``, where that is known."""
    return f"/{total:.0f}" if total else ""


def _finite_numbers(event: Mapping[str, object]) -> dict[str, float]:
    numbers = {name: as_number(value) for name, value in event.items()}
    return {name: n for name, n in numbers.items() if n is not None and math.isfinite(n)}
