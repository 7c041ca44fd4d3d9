"""The best model of a run, in ``export/best`` of the job folder (``--export best``)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from distlaunch_trainer import keras_compat
from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.options import Settings
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.task.storage import (
    explained,
    is_bucket,
    join,
    make_folder,
    read_if_there,
    remove,
    write_whole,
)

from .model_files import save_model

EXPORT = ("export", "best")
_FACTS = "evaluation.json"  # complete if it is there


class BestModel:
    """Writes a model if it is better than those before, by the metric that the options name."""

    def __init__(
        self, model: keras.Model, settings: Settings, job_dir: str, report: Report
    ) -> None:
        self._folder = join(job_dir, *EXPORT)
        self._new_folder = join(job_dir, EXPORT[0], ".new")
        self._metric = settings.export_metric.removeprefix("val_")
        self._sign = 1 if (settings.export_mode or self._known_mode(model)) == "min" else -1
        self._report = report
        self.best: float | None = None  # of the evaluations so far

    def is_better(self, logs: Mapping[str, Any]) -> bool:
        """Return whether an evaluation is better than all before, and remember it then.

        `logs` are its results on the validation data, without ``val_``.
        """
        value = logs.get(self._metric)
        if not isinstance(value, (int, float)):
            names = ", ".join(name for name, each in logs.items() if isinstance(each, (int, float)))
            raise ModelError(f"--export-metric {self._metric}: no such number; there are: {names}")
        is_better = not math.isnan(value) and (
            self.best is None or self._sign * value < self._sign * self.best
        )
        if is_better:
            self.best = float(value)
        return is_better

    def write(self, model: keras.Model, facts: Mapping[str, Any]) -> None:
        """Write a model, and ``evaluation.json`` with facts beside it.

        A folder that can be renamed is replaced as a whole. In a bucket ``evaluation.json`` is
        removed first and written last.
        """
        facts = {**facts, "metric": self._metric, "value": self.best}
        text = json.dumps(facts, indent=2) + "\n"
        folder = self._folder if is_bucket(self._folder) else self._new_folder
        remove(join(folder, _FACTS) if folder == self._folder else folder)
        make_folder(folder)
        save_model(model, folder, self._report)
        write_whole(join(folder, _FACTS), text.encode())
        if folder != self._folder:
            self._publish()

    def load(self) -> None:
        """Read the best value of an earlier process, none if its model is not complete."""
        if not is_bucket(self._folder) and self._facts_of(self._new_folder):
            self._publish()
        facts = self._facts_of(self._folder) or {}
        self.best = facts.get("value") if facts.get("metric") == self._metric else None

    def _publish(self) -> None:
        """Replace the folder by the new one; `load` finishes what was interrupted."""
        with explained("cannot write", self._folder):
            remove(self._folder)
            Path(self._new_folder).rename(self._folder)

    def _facts_of(self, folder: str) -> dict[str, Any] | None:
        """Return the facts of a completely written model, otherwise None."""
        text = read_if_there(join(folder, _FACTS))
        return json.loads(text) if text else None

    def _known_mode(self, model: keras.Model) -> str:
        """Return ``min`` or ``max``, as Keras's callbacks take it for the metric."""
        direction = keras_compat.metric_direction(model, self._metric)
        if direction is None:
            raise ModelError(
                f"--export-metric {self._metric}: no metric of this name is known to be better "
                "low or high: correct the name, or add --export-mode min or --export-mode max"
            )
        return "max" if direction == "up" else "min"


class ExportBest(keras.callbacks.Callback):
    """Exports the best model by the validation at the end of each epoch, on the chief.

    A checkpoint holds its state.
    """

    def __init__(self, best: BestModel) -> None:
        super().__init__()
        self._best = best

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Write the model if it is the best so far."""
        results = {
            name.removeprefix("val_"): value
            for name, value in (logs or {}).items()
            if name.startswith("val_")
        }
        if self._best.is_better(results):
            self._best.write(self.model, {"epoch": epoch + 1, "logs": results})

    def get_state(self) -> dict[str, Any]:
        """Return the best value."""
        return {"best": self._best.best}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the best value."""
        self._best.best = state["best"]
