"""The evaluator task: it evaluates each checkpoint of a job while other tasks train.

It is no member of the cluster and reads the checkpoints from the job folder. Each is evaluated
once, the oldest first; one that is removed before it was read is left out. The last one is never
removed, so it is always evaluated.
"""

from __future__ import annotations

import json
import time
from typing import Any

import keras
import numpy as np

from distlaunch_trainer.errors import StorageError, TrainingStopped
from distlaunch_trainer.input.batches import Data
from distlaunch_trainer.loop.evaluator import Evaluator
from distlaunch_trainer.loop.saved_weights import restore_weights
from distlaunch_trainer.report.report import format_results
from distlaunch_trainer.run_start import JoinedRun
from distlaunch_trainer.saving.checkpoints import Checkpoint
from distlaunch_trainer.step.model_replicas import ModelReplicas
from distlaunch_trainer.step.step_functions import StepFunctions
from distlaunch_trainer.task.storage import join, read_if_there, write_whole
from distlaunch_trainer.training_state import Progress

from .evaluator_status import EVALUATIONS, EvaluatorSide, poll_seconds

# Between looks at the stop signal, and beats for the chief.
_STEPS_PER_EXECUTION = 20


class ContinuousEvaluation:
    """Evaluates the checkpoints of a job folder with a compiled model, on this task alone."""

    def __init__(self, joined: JoinedRun, model: keras.Model, data: Data) -> None:
        self._cluster, self._report = joined.cluster, joined.report
        self._model = model
        self._checkpoints = joined.checkpoints
        self._job_dir = job_dir = joined.folders.job
        self._stop = joined.stop
        synchronize = joined.settings.sync_batch_norm
        replicas = ModelReplicas(model, self._cluster.strategy, synchronize=synchronize)
        self._evaluator = Evaluator(model, StepFunctions(replicas), self._cluster, data)
        self._status = EvaluatorSide(job_dir)
        self._run: str | None = None
        self._records: list[dict[str, Any]] = []
        self._left_out: set[str] = set()

    def run(self) -> list[dict[str, Any]]:
        """Evaluate until the training has ended and its last checkpoint is evaluated.

        Return a record of each evaluation.
        """
        self._stop.defer()
        self._load()
        if not self._checkpoints.listed():
            self._report.log(f"waiting for the first checkpoint in {self._checkpoints.folder}")
        while True:
            self._leave_if_stopped()
            self._status.beat()
            run = self._status.run()
            if run != self._run:  # the chief has started, perhaps from scratch
                self._run = run
                self._load()
            if self._evaluate_next():
                continue
            final = self._status.final()
            if final is not None and final in self._done:
                self._status.has_evaluated(final)
                return self._records
            time.sleep(poll_seconds(self._job_dir))

    @property
    def _done(self) -> set[str]:
        return {record["checkpoint"] for record in self._records} | self._left_out

    def _load(self) -> None:
        """Read the evaluations of an earlier evaluator of this run."""
        text = read_if_there(join(self._job_dir, EVALUATIONS)) or b""
        self._records = [json.loads(line) for line in text.decode().splitlines() if line]
        self._left_out.clear()

    def _evaluate_next(self) -> bool:
        """Evaluate the oldest checkpoint that was not evaluated; return whether there was one."""
        done = self._done
        for name in self._checkpoints.listed():
            checkpoint = self._read(name) if name not in done else None
            if checkpoint is not None:
                self._evaluate(name, checkpoint)
                return True
        return False

    def _evaluate(self, name: str, checkpoint: Checkpoint) -> None:
        restore_weights(self._model, name, checkpoint, self._cluster)
        logs = self._evaluator.evaluate(_STEPS_PER_EXECUTION, self._must_stop)
        self._leave_if_stopped()
        if logs is not None and self._status.run() == self._run:  # no other run has begun
            self._record(name, checkpoint.state.progress, logs)

    def _read(self, name: str) -> Checkpoint | None:
        """Return a checkpoint, None if it is not complete, was removed or is damaged."""
        try:
            return self._checkpoints.read(name)
        except StorageError as error:
            if self._checkpoints.is_complete(name):
                self._report.warn(f"{error}; it is not evaluated")
                self._left_out.add(name)
            return None

    def _record(self, name: str, progress: Progress, logs: dict[str, Any]) -> None:
        facts = {
            "step": progress.step,
            "epoch": len(progress.history),
            "checkpoint": name,
            "logs": {key: np.asarray(value).tolist() for key, value in logs.items()},
        }
        self._records.append({**facts, "time": time.time()})
        lines = "".join(json.dumps(each) + "\n" for each in self._records)
        write_whole(join(self._job_dir, EVALUATIONS), lines.encode())
        self._report.event("evaluation", **facts)
        self._report.evaluation_scalars(progress.step, logs)
        self._report.log(f"evaluation of step {progress.step}: {format_results(logs)}")
        self._status.has_evaluated(name)

    def _must_stop(self) -> bool:
        self._status.beat()
        return self._stop.received

    def _leave_if_stopped(self) -> None:
        if self._stop.received:
            step = self._records[-1]["step"] if self._records else 0
            raise TrainingStopped(f"stopped by a signal: evaluated up to step {step}")
