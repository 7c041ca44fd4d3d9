"""The calls of ``fit``, ``evaluate`` and ``predict`` of a script, on all replicas."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer import keras_compat, keras_random
from distlaunch_trainer.batch_rows import as_tensor, map_tensors
from distlaunch_trainer.callbacks import TEST_HOOKS, Callbacks, has_hook
from distlaunch_trainer.checkpoints import Checkpoints, Progress, RunOptions, agreed_state
from distlaunch_trainer.cluster import Cluster
from distlaunch_trainer.custom_steps import overrides
from distlaunch_trainer.errors import DataError, ModelError
from distlaunch_trainer.evaluation import STEPS_PER_EXECUTION
from distlaunch_trainer.evaluator import Evaluator
from distlaunch_trainer.loop import Loop
from distlaunch_trainer.measurements import Measurements
from distlaunch_trainer.model_build import build_model
from distlaunch_trainer.model_files import save_model
from distlaunch_trainer.model_state import find_optimizers
from distlaunch_trainer.normalization import replica_count_warnings
from distlaunch_trainer.rendezvous import LOADING
from distlaunch_trainer.report import Report
from distlaunch_trainer.step_functions import StepFunctions
from distlaunch_trainer.step_watchdog import STEP_TIMEOUT
from distlaunch_trainer.stop_signal import StopSignal
from distlaunch_trainer.storage import join, make_folder
from distlaunch_trainer.strategy import check_same_strategy

from .interception import intercepted, set_verbosity
from .keras_data import Caller, KerasData, open_data
from .prediction import predict_alone, predict_together

AFTER_FIT = "outside of fit(): what fit() has done is saved"


class Session:
    """The calls of one task's script.

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
    checkpoint_every
        Steps between checkpoints; 0 for one at the end of each epoch only.
    step_timeout
        Seconds without a finished step after which this task ends, 0 for none; None: the default.
    sync_batch_norm
        Whether all batch normalizations take their statistics from all replicas.

    Attributes
    ----------
    step
        Steps of all calls of ``fit``.
    epochs
        The records of the epochs of all calls.
    resumed_from
        The step that the run resumed from, None if it started from scratch.
    model
        The model that was trained last.
    facts
        What the last call's ``ready`` event reported of data and replicas.
    timing
        Where the time of the last call's steps went.
    rendezvous
        The places of the script that all tasks come to.
    call
        The call that runs, for messages: ``fit() (train.py, line 30)``.
    """

    def __init__(
        self,
        cluster: Cluster,
        report: Report,
        stop: StopSignal,
        *,
        checkpoints_dir: str,
        checkpoint_every: int = 0,
        step_timeout: float | None = None,
        sync_batch_norm: bool = False,
    ) -> None:
        self._checkpoint_every = checkpoint_every
        if step_timeout is None:
            step_timeout = STEP_TIMEOUT if cluster.role.num_workers > 1 else 0.0
        self._step_timeout = step_timeout
        self._sync_batch_norm = sync_batch_norm
        self.cluster = cluster
        self.report = report
        self.stop = stop
        self.step = 0
        self.epochs: list[dict[str, Any]] = []
        self.resumed_from: int | None = None
        self.model: keras.Model | None = None
        self.facts: dict[str, Any] = {}
        self.timing: dict[str, Any] | None = None
        self.rendezvous = cluster.rendezvous
        self.call = ""
        self._is_seeded = False
        self._is_in_fit = False
        self._checkpoints_dir = checkpoints_dir
        self._calls = 0
        self._notes: set[str] = set()
        self._loop: Loop | None = None  # kept, as its iterators may end slowly
        self._own_cluster: Cluster | None = None

    def install(self, model: Any = keras.Model) -> None:
        """Have models of Keras train, evaluate and predict on the replicas of the cluster."""
        set_seed = tf.random.set_seed

        def set_seed_of_script(seed: int) -> None:
            self._is_seeded = True
            set_seed(seed)

        tf.random.set_seed = set_seed_of_script
        for name, intercept in (
            ("fit", self._fit),
            ("evaluate", self._evaluate),
            ("predict", self._predict),
            ("predict_on_batch", self._predict_on_batch),
            ("train_on_batch", self._on_batch),
            ("test_on_batch", self._on_batch),
        ):
            setattr(model, name, intercepted(getattr(model, name), intercept))
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
        notes = replica_count_warnings(
            model, self.cluster.replicas, synchronized=self._sync_batch_norm
        )
        for note in (note for note in notes if note not in self._notes):
            self.report.warn(note)
        self._notes.update(notes)

    def _fit(self, function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
        values = arguments.arguments
        model = values["self"]
        if not model.compiled:
            return function(*arguments.args, **arguments.kwargs)  # which refuses it
        check_same_strategy(model, self.cluster.strategy, "fit()")
        set_verbosity(values, is_chief=self.cluster.role.is_chief)
        if most := keras.config.max_epochs():  # for debugging
            values["epochs"] = min(values["epochs"], most)
        self._calls += 1
        self._meet("fit()")
        self.model = model
        training, validation = self._fit_data(values)
        self.warn_of_layers(model)
        self._build(model, training, trains=True)
        compared = _compared(training, validation)
        with self._checkpoints() as checkpoints, self._stopping(), compared:
            self._loop = loop = self._make_loop(model, training, validation, checkpoints, values)
            self._report_start(training, values, loop.step)
            final = loop.run()
            if self.cluster.role.is_chief:
                checkpoints.keep_newest()
        self.step, self.timing = final.step, loop.timing
        self.epochs += final.history
        return model.history

    def _fit_data(self, values: dict[str, Any]) -> tuple[KerasData, KerasData | None]:
        """Return the training and the validation data of a call of ``fit``."""
        arrays, held_out = keras_compat.split_arrays(values)
        names = ("batch_size", "steps_per_epoch", "shuffle", "class_weight")
        with self._shuffled_arrays():
            training = self._open(values["self"], *arrays, **{name: values[name] for name in names})
        if held_out is None:
            return training, None
        validation = self._open(
            values["self"],
            *keras.utils.unpack_x_y_sample_weight(held_out),
            batch_size=values["validation_batch_size"] or values["batch_size"],
            steps_per_epoch=values["validation_steps"],
        )
        return training, validation

    def _open(
        self, model: keras.Model, *arrays: Any, gathers_rows: bool = False, **options: Any
    ) -> KerasData:
        """Return the data of a call, as Keras takes them."""
        adapter = keras_compat.data_adapter(*arrays, **options)
        caller = Caller(self._cluster_of(model), self.report, self.call, gathers_rows)
        return open_data(adapter, options.get("steps_per_epoch"), caller)

    def _make_loop(
        self,
        model: keras.Model,
        training: KerasData,
        validation: KerasData | None,
        checkpoints: Checkpoints,
        values: dict[str, Any],
    ) -> Loop:
        """Return the loop of a call of ``fit``, as of the run that is resumed."""
        cluster, first = self._cluster_of(model), values["initial_epoch"]
        saved = checkpoints.latest() if cluster.role.is_chief else None
        start = agreed_state(cluster, saved and saved.state)
        callbacks = Callbacks(
            _flatten(values["callbacks"]),
            model,
            epochs=values["epochs"],
            steps=training.steps,
            writes=True,
            report=self.report,
            verbose=values["verbose"],
        )
        callbacks.take_bad_losses = True  # as Keras does
        loop = Loop(
            model,
            cluster,
            training,
            validation,
            functions=self._functions(model),
            callbacks=callbacks,
            checkpoints=checkpoints,
            report=self.report,
            stop=self.stop,
            options=self._options(training),
            progress=start.progress if start else Progress(self.step, epoch_step=self.step),
            measurements=Measurements(model, cluster, self.report),
            epochs=max(0, values["epochs"] - first),
            first_epoch=first,
            epochs_before=len(self.epochs),
            validation_freq=values["validation_freq"],
            checkpoint_every=self._checkpoint_every,
            step_timeout=self._step_timeout,
            prints_epochs=False,
        )
        if start is not None:
            loop.restore(saved)
            self.resumed_from = loop.step
            if loop.is_done:
                message = f"fit() was done at step {loop.step}: its weights are restored"
            else:
                message = f"resuming after step {loop.step}, in epoch {first + loop.epoch + 1}"
            self.report.log(message)
        return loop

    def _options(self, training: KerasData) -> RunOptions:
        """Return what a checkpoint holds of a call."""
        return RunOptions(
            examples=training.examples or 0,
            global_batch=training.global_batch or 0,
            shards=self.cluster.replicas,
            seed=0,
            shuffle=0,
            steps_per_epoch=training.requested_steps or 0,
            precision=keras.config.dtype_policy().name,
        )

    def _report_start(self, training: KerasData, values: dict[str, Any], step: int) -> None:
        self.facts = {
            "global_batch": training.global_batch,
            "steps_per_epoch": training.steps,
            "epochs": len(self.epochs) + max(0, values["epochs"] - values["initial_epoch"]),
            "examples": training.examples,
            "replicas": self.cluster.replicas,
        }
        known = {name: value for name, value in self.facts.items() if value is not None}
        self.report.event("ready", **known, tasks=self.cluster.role.num_workers, step=step)

    @contextmanager
    def _checkpoints(self) -> Iterator[Checkpoints]:
        """Yield the checkpoints of this call, and wait for them."""
        folder = join(self._checkpoints_dir, f"fit-{self._calls}")
        if self.cluster.role.is_chief:
            make_folder(folder)
        with Checkpoints(folder, self.report) as checkpoints:
            yield checkpoints

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
                self.stop.end_at_once(AFTER_FIT)

    def _cluster_of(self, model: keras.Model) -> Cluster:
        """Return the cluster of a model: one task may make a strategy of its own."""
        strategy = model.distribute_strategy
        if self.cluster.role.num_workers > 1 or strategy is self.cluster.strategy:
            return self.cluster
        if self._own_cluster is None or self._own_cluster.strategy is not strategy:
            self._own_cluster = Cluster(self.cluster.role, strategy)
        return self._own_cluster

    def _functions(self, model: keras.Model) -> StepFunctions:
        """Return the functions of a model's steps, which end with ``compile()``."""
        if not isinstance(model.train_function, StepFunctions):
            model.train_function = StepFunctions(
                model, self._cluster_of(model).strategy, synchronize=self._sync_batch_norm
            )
        return model.train_function

    def _evaluate(self, function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
        values = arguments.arguments
        model = values["self"]
        if not model.compiled:
            return function(*arguments.args, **arguments.kwargs)  # which refuses it
        check_same_strategy(model, self.cluster.strategy, "evaluate()")
        set_verbosity(values, is_chief=self.cluster.role.is_chief)
        self._meet("evaluate()")
        names = ("x", "y", "sample_weight")
        data = self._open(
            model,
            *(values[name] for name in names),
            batch_size=values["batch_size"],
            steps_per_epoch=values["steps"],
        )
        self._build(model, data)
        functions = self._functions(model)
        functions.synchronize()
        given = values["callbacks"]
        own = any(has_hook(callback, TEST_HOOKS) for callback in _flatten(given))
        hooks = self.rendezvous.exchange("batch hooks", own, "to call evaluate()")
        callbacks = self._callback_list(given, model, data, values["verbose"])
        evaluator = Evaluator(
            model,
            functions,
            self._cluster_of(model),
            data,
            callbacks=callbacks,
            calls_batch_hooks=any(hooks),
        )
        with _compared(data):
            logs = evaluator.evaluate(STEPS_PER_EXECUTION)
        return logs if values["return_dict"] else keras_compat.metrics_in_order(model, logs)

    def _callback_list(
        self, given: Any, model: keras.Model, data: KerasData, verbose: int
    ) -> keras.callbacks.CallbackList:
        """Return the callbacks of a call, with the progress bar of Keras."""
        if isinstance(given, keras.callbacks.CallbackList):
            return given
        return keras.callbacks.CallbackList(
            given,
            add_progbar=verbose != 0,
            verbose=verbose,
            epochs=1,
            steps=data.steps,
            model=model,
        )

    def _predict(self, function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
        values = arguments.arguments
        set_verbosity(values, is_chief=self.cluster.role.is_chief)
        if self.cluster.role.num_workers == 1:
            return function(*arguments.args, **arguments.kwargs)
        check_same_strategy(values["self"], self.cluster.strategy, "predict()")
        options = {"batch_size": values["batch_size"], "steps_per_epoch": values["steps"]}
        # In place of a generator, whose first batches it has read.
        values["x"] = adapter = keras_compat.data_adapter(values["x"], **options)
        if adapter.num_batches == 1:
            return predict_alone(function, arguments)
        self._meet("predict()")
        data = self._open(values["self"], adapter, gathers_rows=True, **options)
        with _compared(data):
            return predict_together(function, arguments, data, self.cluster)

    def _predict_on_batch(
        self, function: Callable[..., Any], arguments: inspect.BoundArguments
    ) -> Any:
        return predict_alone(function, arguments)

    def _on_batch(self, function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
        """Train or evaluate on a batch, which each replica has as a whole."""
        values = arguments.arguments
        model = values["self"]
        if not model.compiled:
            return function(*arguments.args, **arguments.kwargs)  # which refuses it
        check_same_strategy(model, self.cluster.strategy, f"{function.__name__}()")
        weights = keras_compat.weights_of_classes(
            values["y"], values["sample_weight"], values.get("class_weight")
        )
        batch = map_tensors(as_tensor, (values["x"], values["y"], weights))
        is_training = function.__name__ == "train_on_batch"
        self._build_for(model, map_tensors(tf.type_spec_from_value, batch), trains=is_training)
        functions = self._functions(model)
        model.reset_metrics()
        if is_training:
            signals = tf.zeros([3])
            functions.keep_logs(functions.train(batch, tf.constant(1), signals, form="whole"))
        else:
            functions.evaluate(batch, tf.constant(1), has_empty_replicas=False, form="whole")
        logs = functions.logs()
        return logs if values["return_dict"] else keras_compat.metrics_in_order(model, logs)

    def _build(self, model: keras.Model, data: KerasData, *, trains: bool = False) -> None:
        self._build_for(
            model, data.first_batch() if data.spec is None else data.spec, trains=trains
        )

    def _build_for(self, model: keras.Model, batch: Any, *, trains: bool) -> None:
        """Create the variables of a model and of all its optimizers, for a batch or its type."""
        with model.distribute_strategy.scope():
            if keras_random.is_same():
                keras_random.global_generator()  # replicas are traced where none can be created
            is_custom = overrides(model, "train_step")
            if is_custom and trains:
                if not _is_built(model):
                    for note in build_model(model, batch):
                        self.report.warn(note)
                    model.built = True  # also without call(), which Keras would set it in
                return
            try:
                keras_compat.build_by_call(model, batch)
            except RuntimeError:
                if not is_custom:  # a model whose own steps do not call it needs no build
                    raise

    def _shuffled_arrays(self) -> AbstractContextManager[None]:
        """Shuffle arrays in another order in each epoch, the same on all tasks.

        With a seed Keras repeats the order of the first epoch; that is so if the script sets one.
        """
        if self._is_seeded:
            return nullcontext()
        return keras_compat.array_shuffle(self._permute)

    def _permute(self, rows: np.ndarray) -> np.ndarray:
        epoch = self._loop.epoch if self._loop else 0
        return np.random.default_rng((self._calls, epoch)).permutation(rows)

    def _load(self, function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
        if tf.distribute.has_strategy():  # creates its variables on all tasks together
            self._meet(LOADING)
        return function(*arguments.args, **arguments.kwargs)

    def _meet(self, action: str) -> None:
        """Wait until all tasks make this call."""
        self.call = self.rendezvous.meet(action)


def _flatten(given: Any) -> list[keras.callbacks.Callback]:
    """Return the callbacks that a script gives: None, one, a list or a `CallbackList`."""
    if isinstance(given, keras.callbacks.CallbackList):
        return list(given.callbacks)
    return keras.tree.flatten(given or [])


def _is_built(model: keras.Model) -> bool:
    optimizers = find_optimizers(model).values()
    return model.built and all(optimizer.built for optimizer in optimizers)


@contextmanager
def _compared(*data: KerasData | None) -> Iterator[None]:
    """Name the rows that differ between the tasks, if reading fails for that."""
    try:
        yield
    except tf.errors.OpError as error:
        for comparison in (each.comparison for each in data if each):
            if comparison and comparison.problem:
                raise DataError(comparison.problem) from error
        raise
