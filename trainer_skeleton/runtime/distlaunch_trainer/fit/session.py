"""The calls of ``fit`` of a script: what they report, and where they start."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.callbacks import append_to_logs
from distlaunch_trainer.cluster import Cluster
from distlaunch_trainer.errors import DataError, ModelError
from distlaunch_trainer.model_files import save_model
from distlaunch_trainer.normalization import replica_count_warnings
from distlaunch_trainer.rendezvous import LOADING
from distlaunch_trainer.report import Report
from distlaunch_trainer.same_rows import RowComparison
from distlaunch_trainer.stop_signal import StopSignal
from distlaunch_trainer.storage import make_folder
from distlaunch_trainer.strategy import check_same_strategy

from .backup import Backup
from .batch_logs import batch_logs
from .interception import intercepted, set_verbosity
from .progress import Progress
from .weighting import StatisticsAverager

AFTER_FIT = "outside of fit(): what fit() has done is saved"


@dataclass(frozen=True)
class FitData:
    """The data of a call of ``fit``, and what is known of it before it is read."""

    batches: keras_compat.FitBatches
    examples: int | None
    global_batch: int | None


class Session:
    """The calls of ``fit`` of one task's script.

    Parameters
    ----------
    cluster
        The cluster.
    report
        Where to report.
    stop
        The handler of SIGTERM.
    checkpoints_dir
        The folder for checkpoints.

    Attributes
    ----------
    step
        Steps of all calls.
    epochs
        The records of the epochs of all calls.
    resumed_from
        The step that the run resumed from, None if it started from scratch.
    model
        The model that was trained last.
    must_build, is_training
        Whether models must be built before their first step, and whether ``fit`` runs.
    facts
        What the last call's ``ready`` event reported of data and replicas.
    data
        The training data of the last call.
    epoch
        The epoch that runs, from 0.
    rendezvous
        The places of the script that all tasks come to.
    call
        The call that runs, for messages: ``fit() (train.py, line 30)``.
    comparison
        The last comparison of a data set between the tasks.
    """

    def __init__(
        self,
        cluster: Cluster,
        report: Report,
        stop: StopSignal,
        *,
        checkpoints_dir: str,
    ) -> None:
        self.cluster = cluster
        self.report = report
        self.stop = stop
        self.step = 0
        self.epochs: list[dict[str, Any]] = []
        self.resumed_from: int | None = None
        self.model: keras.Model | None = None
        self.facts: dict[str, Any] = {}
        self.data: FitData | None = None
        self.must_build = cluster.replicas > 1
        self.is_training = False
        self.epoch = 0
        self.rendezvous = cluster.rendezvous
        self.call = ""
        self.comparison: RowComparison | None = None
        self._is_seeded = False
        self._checkpoints_dir = checkpoints_dir
        self._calls = 0
        self._notes: set[str] = set()
        self._statistics = StatisticsAverager(cluster.strategy)

    def install(self) -> None:
        """Report all calls of ``fit``, and print the progress of Keras on the chief only."""
        set_seed = tf.random.set_seed

        def set_seed_of_script(seed: int) -> None:
            self._is_seeded = True
            set_seed(seed)

        tf.random.set_seed = set_seed_of_script
        model = keras.Model
        model.fit = intercepted(model.fit, self._fit)
        for name in ("evaluate", "predict"):
            setattr(model, name, intercepted(getattr(model, name), self._evaluate))
        load = intercepted(keras.saving.load_model, self._load)
        keras.saving.load_model = keras.models.load_model = load
        self.rendezvous.watch_variables(self.cluster.strategy)

    def save_model(self, folder: str) -> list[str]:
        """Write the model that was trained last, on the chief; return the names of the files.

        A model that Keras cannot save is a warning: the script saves what it needs itself.
        """
        if not self.cluster.role.is_chief:
            return []
        make_folder(folder)
        try:
            return save_model(self.model, folder, self.report)
        except ModelError as problem:
            self.report.warn(str(problem))
            return []

    def warn_of_layers(self, model: keras.Model) -> None:
        """Warn once of each layer by which the weights depend on the number of replicas."""
        remedy = "BatchNormalization(synchronized=True) uses all rows"
        notes = replica_count_warnings(
            model, self.cluster.replicas, synchronized=False, remedy=remedy
        )
        for note in (note for note in notes if note not in self._notes):
            self.report.warn(note)
        self._notes.update(notes)

    def observe(self, data: FitData) -> None:
        """Take note of the data that a call reads; the first ones are the training data."""
        if self.data is None:
            self.data = data

    def shuffled_arrays(self) -> AbstractContextManager[None]:
        """Shuffle arrays in another order in each epoch, the same on all tasks.

        With a seed Keras repeats the order of the first epoch; that is so if the script sets one.
        """
        if self._is_seeded:
            return nullcontext()
        return keras_compat.array_shuffle(self._permute)

    def _permute(self, rows: np.ndarray) -> np.ndarray:
        return np.random.default_rng((self._calls, self.epoch)).permutation(rows)

    def average_statistics(self, model: keras.Model) -> None:
        """Give all replicas the same moving statistics; a collective."""
        if self.cluster.replicas > 1 and model.built:
            self._statistics.average(model)

    def _fit(self, function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
        values = arguments.arguments
        check_same_strategy(values["self"], self.cluster.strategy, "fit()")
        set_verbosity(values, is_chief=self.cluster.role.is_chief)
        self._calls += 1
        self._meet("fit()")
        backup = Backup(self._checkpoints_dir, self._calls, self.cluster, self.report)
        saved = backup.load()
        self.must_build = self.cluster.replicas > 1 or saved is not None
        self.model, self.data = values["self"], None
        keras_compat.set_initial_epoch(self.model, None)
        callbacks = _flatten(values["callbacks"])
        if saved:
            append_to_logs(callbacks, saved.epoch)
        first = batch_logs(callbacks, self.cluster)
        epochs = values["initial_epoch"], values["epochs"]
        progress = Progress(self, backup, callbacks, *epochs, has_batch_hooks=bool(first))
        # The history before Progress, which adds the epochs of an earlier run.
        has_history = any(isinstance(c, keras.callbacks.History) for c in callbacks)
        history = [] if has_history else [keras.callbacks.History()]
        values["callbacks"] = [*first, *callbacks, *history, progress]
        self.is_training = True
        try:
            return self._run(function, arguments)
        finally:
            self.is_training = False
            self.stop.end_at_once(AFTER_FIT)

    def _load(self, function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
        if tf.distribute.has_strategy():  # creates its variables on all tasks together
            self._meet(LOADING)
        return function(*arguments.args, **arguments.kwargs)

    def _meet(self, action: str) -> None:
        """Wait until all tasks make this call."""
        self.call = self.rendezvous.meet(action)

    def _evaluate(self, function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
        model = arguments.arguments["self"]
        check_same_strategy(model, self.cluster.strategy, f"{function.__name__}()")
        set_verbosity(arguments.arguments, is_chief=self.cluster.role.is_chief)
        self._meet(f"{function.__name__}()")
        self.average_statistics(model)
        given = arguments.arguments["callbacks"]
        # Within fit() it is a list that has what it needs.
        if function.__name__ == "evaluate" and not isinstance(given, keras.callbacks.CallbackList):
            callbacks = _flatten(given)
            arguments.arguments["callbacks"] = [*batch_logs(callbacks, self.cluster), *callbacks]
        return self._run(function, arguments)

    def _run(self, function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
        try:
            return function(*arguments.args, **arguments.kwargs)
        except tf.errors.OpError as error:
            if self.comparison and self.comparison.problem:
                raise DataError(self.comparison.problem) from error
            raise


def _flatten(given: Any) -> list[keras.callbacks.Callback]:
    """Return the callbacks that a script gives: None, one, a list or a `CallbackList`."""
    if isinstance(given, keras.callbacks.CallbackList):
        return list(given.callbacks)
    return keras.tree.flatten(given or [])
