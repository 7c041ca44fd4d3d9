"""The calls of a script: ``fit`` and ``evaluate`` on all replicas, ``predict`` on the first one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.cluster.rendezvous import LOADING
from distlaunch_trainer.cluster.strategy import check_same_strategy
from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.input.data_setup import TrainingData
from distlaunch_trainer.input.run_options import resume_on_data
from distlaunch_trainer.input.user_data.user_batches import UserBatches, compared
from distlaunch_trainer.keras_compat import fit_calls
from distlaunch_trainer.loop.callbacks import Callbacks
from distlaunch_trainer.loop.loop import Loop
from distlaunch_trainer.loop.loop_options import LoopOptions, StepTools, TaskServices
from distlaunch_trainer.model.initial_weights import check_weights
from distlaunch_trainer.options import Settings
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.saving.checkpoints import Checkpoints, agreed_state
from distlaunch_trainer.saving.model_files import save_model
from distlaunch_trainer.task.step_watchdog import STEP_TIMEOUT
from distlaunch_trainer.task.stop_signal import StopSignal
from distlaunch_trainer.task.storage import join, make_folder
from distlaunch_trainer.training_state import Progress

from .chief_files import file_of_chief
from .evaluation import evaluate_together, evaluation_data, flatten_callbacks
from .interception import intercepted, set_verbosity
from .open_data import Caller, open_data
from .script_models import ScriptModels

_AFTER_FIT = "outside of fit(): what fit() has done is saved"


class Session:
    """The calls of one task's script."""

    def __init__(
        self,
        cluster: Cluster,
        report: Report,
        stop: StopSignal,
        checkpoints_dir: str,
        settings: Settings,
    ) -> None:
        self._settings = settings
        self.models = ScriptModels(cluster, report, sync_batch_norm=settings.sync_batch_norm)
        self.cluster = cluster
        self.report = report
        self.stop = stop
        self.step = 0  # of all calls of fit()
        self.epochs: list[dict[str, Any]] = []  # the records of all calls
        self.resumed_from: int | None = None  # the step; None if from scratch
        self.model: keras.Model | None = None  # that was trained last
        self.facts: dict[str, Any] = {}  # of the last call's ready event: data and replicas
        self.timing: dict[str, Any] | None = None  # of the last call's steps
        self.rendezvous = cluster.rendezvous
        self.call = ""  # that runs, for messages: fit() (train.py, line 30)
        self._is_seeded = False
        self._is_in_fit = False
        self._checkpoints_dir = checkpoints_dir
        self._calls = 0
        self._loop: Loop | None = None  # kept, as its iterators may end slowly

    def install(self, model: Any = keras.Model) -> None:
        """Have models of Keras train, evaluate and predict on the replicas of the cluster."""
        set_seed = tf.random.set_seed

        def set_seed_of_script(seed: int) -> None:
            self._is_seeded = True
            set_seed(seed)

        tf.random.set_seed = set_seed_of_script
        # Those of Keras 3 fail on several workers: keras-team/keras#20585.
        for name, intercept in (
            ("fit", self._fit),
            ("evaluate", self._evaluate),
            ("predict", self._predict),
            ("predict_on_batch", predict_alone),
            ("train_on_batch", self.models.run_on_batch),
            ("test_on_batch", self.models.run_on_batch),
        ):
            setattr(model, name, intercepted(getattr(model, name), intercept))
        load = intercepted(keras.saving.load_model, self._load)
        keras.saving.load_model = keras.models.load_model = load
        for owner in (keras.Model, keras.saving):
            owner.load_weights = intercepted(owner.load_weights, self._load)
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

    def _fit(self, function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
        values = arguments.arguments
        model = values["self"]
        if not model.compiled:
            return function(*arguments.args, **arguments.kwargs)  # which refuses it
        self._begin("fit()", values)
        if most := keras.config.max_epochs():  # for debugging
            values["epochs"] = min(values["epochs"], most)
        self._calls += 1
        if model is not self.model:  # it may be trained on after a loss that was NaN
            check_weights(model)
        self.model = model
        training, validation = self._fit_data(values)
        self.models.warn_of_layers(model)
        self.models.build(model, training.spec_or_batch(), trains=True)
        with self._checkpoints() as checkpoints, self._stopping(), compared(training, validation):
            self._loop = loop = self._make_loop(model, training, validation, checkpoints, values)
            self.report_start(
                loop.step,
                max(0, values["epochs"] - values["initial_epoch"]),
                global_batch=training.global_batch,
                examples=training.examples,
                steps_per_epoch=training.steps,
            )
            final = loop.run()
            if self.cluster.role.is_chief:
                checkpoints.keep_newest()
        self.step, self.timing = final.step, loop.timing
        self.epochs += final.history
        return model.history

    def _fit_data(self, values: dict[str, Any]) -> tuple[UserBatches, UserBatches | None]:
        """Return the training and the validation data of a call of ``fit``."""
        arrays, held_out = fit_calls.split_arrays(values)
        names = ("batch_size", "steps_per_epoch", "shuffle", "class_weight")
        caller = self._caller(values["self"])
        with self._shuffled_arrays():
            training = open_data(caller, *arrays, **{name: values[name] for name in names})
        if held_out is None:
            return training, None
        validation = open_data(
            caller,
            *keras.utils.unpack_x_y_sample_weight(held_out),
            batch_size=values["validation_batch_size"] or values["batch_size"],
            steps_per_epoch=values["validation_steps"],
        )
        return training, validation

    def _caller(self, model: keras.Model) -> Caller:
        return Caller(self.models.cluster_of(model), self.report, self.call)

    def _make_loop(
        self,
        model: keras.Model,
        training: UserBatches,
        validation: UserBatches | None,
        checkpoints: Checkpoints,
        values: dict[str, Any],
    ) -> Loop:
        """Return the loop of a call of ``fit``, as of the run that is resumed."""
        cluster, first = self.models.cluster_of(model), values["initial_epoch"]
        saved = checkpoints.latest() if cluster.role.is_chief else None
        start = agreed_state(cluster, saved and saved.state)
        run_options = resume_on_data(
            training.run_options(self.cluster.replicas), start, self.report.warn
        )
        progress = start.progress if start else Progress(self.step, epoch_step=self.step)
        training.first_step = run_options.first_step
        given = flatten_callbacks(values["callbacks"])
        if not cluster.role.is_chief:  # files are redirected, not what is sent
            given = [c for c in given if not isinstance(c, keras.callbacks.RemoteMonitor)]
        callbacks = Callbacks(
            given,
            model,
            epochs=values["epochs"],
            steps=training.steps,
            writes=True,
            report=self.report,
            verbose=values["verbose"],
        )
        callbacks.take_bad_losses = True  # as Keras does
        timeout = self._settings.step_timeout
        if timeout is None:
            timeout = STEP_TIMEOUT if self.cluster.role.num_workers > 1 else 0.0
        options = LoopOptions(
            max(0, values["epochs"] - first),
            first_epoch=first,
            epochs_before=len(self.epochs),
            validation_freq=values["validation_freq"],
            checkpoint_every=self._settings.checkpoint_every,
            step_timeout=timeout,
            prints_epochs=False,
        )
        loop = Loop(
            model,
            TaskServices(cluster, checkpoints, self.report, self.stop),
            TrainingData(training, validation, run_options, None),
            options=options,
            tools=StepTools(self.models.functions_of(model), callbacks),
            progress=progress,
        )
        if start is not None:
            loop.restore(saved)
            self.resumed_from = loop.step
            message = f"resuming after step {loop.step}, in epoch {first + loop.epoch + 1}"
            if loop.is_done:
                message = f"fit() was done at step {loop.step}: its weights are restored"
            self.report.log(message)
        return loop

    def report_start(self, step: int, epochs: int, **data: int | None) -> None:
        """Report that a call of ``fit`` starts after a step: its epochs, and its data."""
        epochs += len(self.epochs)
        self.facts = {**data, "epochs": epochs, "replicas": self.cluster.replicas}
        known = {name: value for name, value in self.facts.items() if value is not None}
        self.report.event("ready", **known, tasks=self.cluster.role.num_workers, step=step)

    def _checkpoints(self) -> Checkpoints:
        """Return the checkpoints of this call."""
        folder = join(self._checkpoints_dir, f"fit-{self._calls}")
        if self.cluster.role.is_chief:
            make_folder(folder)
        return Checkpoints(folder, self.report)

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        """Have all tasks agree to stop in here."""
        self.cluster.barrier()
        is_inner = self._is_in_fit  # of a callback that trains another model
        self.stop.defer()
        self._is_in_fit = True
        try:
            yield
        finally:
            self._is_in_fit = is_inner
            if not is_inner:
                self.stop.end_at_once(_AFTER_FIT)

    def _evaluate(self, function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
        values = arguments.arguments
        model = values["self"]
        if not model.compiled:
            return function(*arguments.args, **arguments.kwargs)  # which refuses it
        self._begin("evaluate()", values)
        caller = self._caller(model)
        data = evaluation_data(values, caller)
        self.models.build(model, data.spec_or_batch())
        functions = self.models.functions_of(model)
        return evaluate_together(model, functions, data, caller.cluster, values)

    def _predict(self, function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
        values = arguments.arguments
        set_verbosity(values, is_chief=self.cluster.role.is_chief)
        if self.cluster.role.num_workers == 1:
            return function(*arguments.args, **arguments.kwargs)
        return predict_alone(function, arguments)

    def _shuffled_arrays(self) -> AbstractContextManager[None]:
        """Shuffle arrays in another order in each epoch, the same on all tasks.

        With a seed Keras repeats the order of the first epoch; that is so if the script sets one.
        """
        if self._is_seeded:
            return nullcontext()
        return fit_calls.array_shuffle(self._permute)

    def _permute(self, rows: np.ndarray) -> np.ndarray:
        epoch = self._loop.epoch if self._loop else 0
        return np.random.default_rng((self._calls, epoch)).permutation(rows)

    def _load(self, function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
        if tf.distribute.has_strategy():  # it changes variables on all tasks
            self._meet(LOADING)
            values = arguments.arguments
            values["filepath"] = file_of_chief(values["filepath"], self.cluster)
        return function(*arguments.args, **arguments.kwargs)

    def _begin(self, call: str, values: dict[str, Any]) -> None:
        """Wait until all tasks make this call, of a model of the cluster's."""
        check_same_strategy(values["self"], self.cluster.strategy, call)
        set_verbosity(values, is_chief=self.cluster.role.is_chief)
        self._meet(call)

    def _meet(self, action: str) -> None:
        """Wait until all tasks make this call."""
        self.call = self.rendezvous.meet(action)


def predict_alone(function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
    """Return what a function of Keras predicts on this task's first replica."""
    with fit_calls.on_one_replica(arguments.arguments["self"]):
        return function(*arguments.args, **arguments.kwargs)
