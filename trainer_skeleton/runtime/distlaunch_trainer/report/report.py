"""Reports of a run: events for a launcher, lines for the user, a summary at the end."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.errors import StorageError
from distlaunch_trainer.task import messages
from distlaunch_trainer.task.events import append_event
from distlaunch_trainer.task.storage import join, read_whole, write_whole

from .figures import PLAN, Figures
from .hypertune import MetricFile
from .tensorboard import Board


class Report:
    """The reports of one task.

    Every task appends its events, one JSON object a line, to the file named by the environment
    variable ``DISTLAUNCH_EVENTS``, if there is one; only the chief prints lines.
    """

    def __init__(self, role: Role, logs_dir: str) -> None:
        self._role = role
        self._metrics = MetricFile()
        self._board = Board(logs_dir, writes=role.is_chief)
        self.figures = Figures()

    def event(self, name: str, **facts: Any) -> None:
        """Append an event; the line is written whole."""
        append_event(name, _plain(facts))
        if name == "ready":  # a job in the cloud has no other report of its length
            self.figures.plan = {key: facts[key] for key in PLAN if facts.get(key)}

    def steps(self, step: int, *, epoch: int, loss: float, examples: int) -> None:
        """Report that steps have ended, up to ``step``, with the examples of all tasks."""
        self.event("step", step=step, epoch=epoch, loss=loss)
        self.figures.progress(step, epoch, examples)

    def log(self, text: str, *, step: int | None = None) -> None:
        """Print a line, on the chief alone."""
        if self._role.is_chief:
            messages.info(text, step=step)

    def warn(self, text: str) -> None:
        """Print a warning, on the chief alone."""
        if self._role.is_chief:
            messages.warning(text)

    def scalars(self, epoch: int, logs: Mapping[str, Any]) -> None:
        """Write an epoch's results that are numbers for TensorBoard, on the chief alone."""
        for name, value in _numbers(logs).items():
            part = "validation" if name.startswith("val_") else "train"
            self._board.scalar(part, f"epoch_{name.removeprefix('val_')}", value, epoch)
        self._board.flush()

    def _speed_scalars(self, record: Mapping[str, Any]) -> None:
        """Write for TensorBoard how fast an epoch was, and where its time went."""
        speed, timing = record["examples_per_second"], record.get("timing")
        values = {"examples_per_second": speed} if speed else {}
        if timing and timing["total"]:
            parts = ("input", "exchange", "wait")
            values |= {f"step_share/{part}": timing[part] / timing["total"] for part in parts}
            values["step_seconds"] = timing["total"]
        for name, value in values.items():
            self._board.scalar("train", name, value, record["epoch"] - 1)
        self._board.flush()

    def epoch(
        self,
        epochs: int,
        history: Sequence[Mapping[str, Any]],
        logs: Mapping[str, Any],
        *,
        shows_rate: bool,
        is_printed: bool = True,
    ) -> None:
        """Report the last epoch of ``history`` as an event, a line, and scalars of ``logs``."""
        record = history[-1]
        self.record_epoch(record)
        if is_printed:
            self.log(epoch_line(epochs, history, shows_rate=shows_rate), step=record["step"])
        self.scalars(record["epoch"] - 1, {**logs, **_rates(record)})
        self._speed_scalars(record)

    def record_epoch(self, record: Mapping[str, Any]) -> None:
        """Report an epoch's record as an event and, on the chief of a trial, to the tuning."""
        self.event("epoch", **record)
        if self._role.is_chief:
            self._metrics.report(record["step"], _numbers(record["logs"]))

    def evaluation_scalars(self, step: int, logs: Mapping[str, Any]) -> None:
        """Write the results of the evaluator task for TensorBoard, named as Keras names them."""
        for name, value in _numbers(logs).items():
            self._board.scalar("evaluator", f"evaluation_{name}_vs_iterations", value, step)
        self._board.flush()


def epoch_record(
    epoch: int,
    step: int,
    logs: Mapping[str, Any],
    *,
    examples: int,
    seconds: float,
    rates: Mapping[str, float],  # ``learning_rate``, or several by names that begin with it
    timing: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the record of an epoch, numbered from 0, as a history keeps it and JSON holds it."""
    return {
        "epoch": epoch + 1,
        "step": step,
        "examples": examples,
        # Of an epoch that was only validated here, there is none.
        "examples_per_second": examples / seconds if examples else None,
        "learning_rate": None,
        **rates,
        "timing": timing,
        "logs": {name: np.asarray(value).tolist() for name, value in logs.items()},
    }


def epoch_line(epochs: int, history: Sequence[Mapping[str, Any]], *, shows_rate: bool) -> str:
    """Return the results of the last epoch of ``history`` as a line.

    It has the learning rate if `shows_rate` is set, or the rate has changed.
    """
    record = history[-1]
    logs = {name: value for name, value in record["logs"].items() if name != "learning_rate"}
    rates, has_changed = _rates(record), _rates(history[-2:][0]) != _rates(record)
    shown = rates.items() if shows_rate or has_changed else ()
    rate = "".join(f" {name} {value:.4g}" for name, value in shown)
    speed = record["examples_per_second"]
    return f"epoch {record['epoch']}/{epochs}: {format_results(logs)}{rate}" + (
        f" ({speed:,.0f} examples/s)" if speed else ""
    )


def _rates(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the learning rates of a record by name."""
    return {n: v for n, v in record.items() if n.startswith("learning_rate") and v is not None}


def write_evaluation(job_dir: str, facts: Mapping[str, Any]) -> str:
    """Write ``evaluation.json`` into the job folder; return its path."""
    logs = {name: np.asarray(value).tolist() for name, value in facts["logs"].items()}
    path = join(job_dir, "evaluation.json")
    text = json.dumps(_plain({**facts, "logs": logs}), indent=2)
    write_whole(path, (text + "\n").encode())
    return path


def write_summary(job_dir: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Write ``summary.json`` into the job folder and return its contents."""
    rates = [r["examples_per_second"] for r in facts["epochs"] if r["examples_per_second"]]
    # The first epoch includes the tracing of the model.
    steady = rates[1:] or rates
    summary = {
        **facts,
        "examples_per_second": statistics.median(steady) if steady else None,
        "restarts": int(os.environ.get("DISTLAUNCH_RESTARTS") or 0),
    }
    plain = _plain(summary)
    write_whole(join(job_dir, "summary.json"), (json.dumps(plain, indent=2) + "\n").encode())
    return plain


def summary_matches(job_dir: str, epochs: list[dict[str, Any]]) -> bool:
    """Return whether ``summary.json``, which is written last, is of the run with these epochs."""
    try:
        summary = json.loads(read_whole(join(job_dir, "summary.json")))
    except (StorageError, ValueError):
        return False
    epochs_before = summary.get("epochs") if isinstance(summary, dict) else None
    return bool(epochs_before == _plain({"epochs": epochs})["epochs"])


def format_results(logs: Mapping[str, Any]) -> str:
    """Return the results that are one number as a text, such as ``loss 0.1234``."""
    return " ".join(f"{name} {value:.4f}" for name, value in _numbers(logs).items())


def _numbers(logs: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics that are one number; others are lists, e.g. a number per class."""
    return {name: value for name, value in logs.items() if isinstance(value, float)}


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts as JSON can hold them: NaN and infinities become null."""
    return json.loads(json.dumps(facts, default=float), parse_constant=lambda _: None)
