"""A training run of one task: cluster, data, model, training and saving, in this order."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .cluster.strategy import check_same_strategy
from .evaluator_task.continuous_evaluation import ContinuousEvaluation
from .evaluator_task.evaluator_status import ChiefSide, has_evaluator
from .fit.evaluation import collective_evaluate
from .input.data_setup import TrainingData, load_data, load_evaluation_data
from .input.user_data.repeated_shuffles import remember_readings
from .input.user_data.user_dataset import cache_by_task, keep_order
from .loop.evaluator import Evaluator
from .loop.loop import Loop
from .loop.saved_weights import restore_weights
from .loop_choice import create_loop
from .model.initial_weights import check_weights
from .model.learning_rate import check_callbacks, set_rates
from .model.model_build import build_model
from .model.user_model import (
    checked_callbacks,
    create_compiled_model,
    set_learning_rate,
    silence_summary,
)
from .report.report import format_results, summary_matches, write_evaluation, write_summary
from .run_facts import (
    gradient_bytes,
    hash_modules,
    machine_facts,
    nothing_to_train_message,
    run_facts,
    run_summary,
)
from .run_start import join_run
from .saving.model_files import files_in, save_model
from .saving.model_loading import saving_problem
from .step.additivity import compare_parts
from .step.custom_steps import TrainStep
from .step.model_replicas import ModelReplicas
from .step.normalization import replica_count_warnings
from .step.step_functions import StepFunctions
from .step.step_timing import input_hint
from .task import explain
from .task.explain import model_build, user_code
from .training_state import Progress


class Run(AbstractContextManager):
    """A training run of one task of a cluster.

    Making it forms the cluster of ``TF_CONFIG``, and reads from the job folder where an earlier run
    stopped. The methods are called in this order, on every task: `load_data`, `build_model` in the
    scope of `strategy`, `fit`; then `save_model` on the chief. As a context manager it ends when
    all tasks are done.

    Parameters
    ----------
    options
        The arguments, parsed by :func:`distlaunch_trainer.options.parser`.

    Raises
    ------
    ModelError
        If this version of Keras is not supported.
    ClusterError
        If ``TF_CONFIG`` is wrong, peers are missing, or tasks do not have the GPUs that they
        should.
    PlanError
        If the options differ from those of the run that is resumed.
    StorageError
        If the job folder cannot be read or written.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._joined = joined = join_run(options)
        self._settings, self._cluster = joined.settings, joined.cluster
        self._folders, self._report, self._stop = joined.folders, joined.report, joined.stop
        remember_readings()
        if self._cluster.role.num_workers > 1:
            keep_order()
        if not self.is_chief:
            cache_by_task(self._cluster.role.name)
        self._data: TrainingData | None = None
        self._step_notes: list[str] = []
        self._loop: Loop | None = None
        self._progress = joined.start.progress if joined.start else Progress()
        self._final: Progress | None = None
        self._results: dict[str, Any] = {}
        self._data_modules = hash_modules()
        self._chief_side: ChiefSide | None = None
        if self.is_chief and has_evaluator(os.environ) and not self._settings.evaluate:
            self._chief_side = ChiefSide(self.job_dir, self._report, is_new=joined.start is None)

    @property
    def strategy(self) -> tf.distribute.Strategy:
        """The strategy of the cluster.

        MultiWorkerMirroredStrategy for several tasks, MirroredStrategy for several GPUs of one
        machine, otherwise the default strategy. With parameter servers too it is the default one:
        the model is the chief's copy.
        """
        return self._cluster.strategy

    @property
    def is_chief(self) -> bool:
        """Whether this task saves and reports for all."""
        return self._cluster.role.is_chief and not self._joined.is_evaluator

    @property
    def job_dir(self) -> str:
        """The job folder, the same when a run resumes: a path or ``gs://`` URL.

        It has no slash at its end.
        """
        return self._folders.job

    def load_data(
        self,
        training: Callable[[], Any],
        validation: Callable[[], Any] | None = None,
        test: Callable[[], Any] | None = None,
    ) -> None:
        """Shard the data over the replicas of all tasks.

        Parameters
        ----------
        training, validation
            Functions that return Records, Arrays or a ``tf.data.Dataset``; `validation` may return
            None. They are called here, after the seed is set.
        test
            Such a function too: the trained model is evaluated on its data.

        Raises
        ------
        DataError
            If the data cannot be used, or are others than those of the run that is resumed.
        PlanError
            If data, batch and cluster do not fit.
        """
        setup = self._settings, self._cluster, self._folders.job, self._report
        none: Callable[[], Any] = lambda: None  # noqa: E731
        functions = {"training": training, "validation": validation or none, "test": test or none}
        if self._settings.evaluate or self._joined.is_evaluator:
            loaded = load_evaluation_data(*setup, **functions)
        else:
            loaded = load_data(*setup, start=self._joined.start, **functions)
        options = loaded.options
        rate = self._settings.learning_rate or options.learning_rate
        self._sets_learning_rate = rate != options.learning_rate
        options = replace(options, learning_rate=rate)
        if self._sets_learning_rate:  # hooks that are called again get the new one
            begun: dict[str, dict[str, float]] = {hook: {} for hook in self._progress.begun}
            self._progress = replace(self._progress, begun=begun)
        self._data = replace(loaded, options=options)

    def build_model(self, create_model: Callable[[], keras.Model]) -> keras.Model:
        """Create the model, and build it for the data; to be called in the strategy's scope.

        Parameters
        ----------
        create_model
            Returns a compiled model. It is called after the seed is set.

        Raises
        ------
        ModelError
            If it fails, returns no compiled model, or the model does not take the data.
        """
        data = self._loaded
        keras.utils.set_random_seed(data.options.seed)
        if not self.is_chief:
            silence_summary(keras)
        model = create_compiled_model(create_model)
        set_rates(model, data.options, self._report.log)
        with user_code("the data cannot be read"):  # parse functions are traced here
            spec = data.training.data_spec()
        with model_build():
            self._step_notes = build_model(model, spec)
        if self._cluster.replicas > 1:
            self._step_notes += compare_parts(model, spec)
        check_weights(model)
        return model

    def fit(
        self,
        model: keras.Model,
        callbacks: Sequence[keras.callbacks.Callback] = (),
        train_step: TrainStep | None = None,
    ) -> list[dict[str, Any]]:
        """Train a model that `build_model` returned; it has the same weights on all tasks.

        Parameters
        ----------
        model
            The model.
        callbacks
            Keras callbacks; they run on every task with the same logs.
        train_step
            A function ``(model, data, global_batch_size)`` that trains on the rows of one replica:
            it applies the gradients of their loss divided by ``global_batch_size``, updates the
            metrics, and returns that loss. By default the compiled loss is minimized, or the
            model's own ``train_step()`` called.

        Returns
        -------
        list of dict
            A record of each epoch, also of those that an earlier run trained: ``epoch`` (from 1),
            ``step``, ``examples``, ``examples_per_second``, and ``logs`` with losses and metrics.

        Raises
        ------
        TrainingStopped
            If a task received SIGTERM; the chief has saved a checkpoint.
        TrainerError
            If a step fails, the loss is not finite, or a checkpoint cannot be written.
        """
        data = self._loaded
        check_same_strategy(model, self.strategy, "fit()")
        if self._joined.is_evaluator:
            with explain.step_errors(self._find_bad_record):
                return ContinuousEvaluation(self._joined, model, data.training).run()
        callbacks = checked_callbacks(callbacks)
        # Kept, as its iterators may end slowly, and the model is to be saved before.
        self._loop = loop = create_loop(
            self._joined,
            model,
            data,
            progress=self._progress,
            callbacks=callbacks,
            train_step=train_step,
        )
        self._warn_of_model(model)
        if self._joined.start is not None:  # also at step 0: callbacks may have state by then
            loop.restore(self._joined.saved)
            self._report.log(f"resuming after step {self._progress.step}")
        if data.options.warmup_epochs:
            check_callbacks(callbacks)
        elif self._sets_learning_rate:
            set_learning_rate(model, data.options.learning_rate * max(1, data.options.rate_scale))
        self._cluster.barrier()  # from here on all tasks can agree to stop
        self._stop.defer()
        distinct = {"examples": data.audit.examples} if data.audit else {}
        self._report_ready(step=self._progress.step, **distinct)
        where = lambda: f"{self._cluster.role.name}: {loop.describe_unfinished()}"  # noqa: E731
        evaluate = collective_evaluate(model, loop.functions, self._cluster, self._report)
        errors = explain.step_errors(self._find_bad_record, where)
        with errors, self._joined.checkpoints, evaluate:
            self._final = loop.run()
            if data.test is not None:
                logs = loop.evaluate(data.test)
                self._report.log(f"test {format_results(logs)}")
                self._results["test"] = {n: np.asarray(v).tolist() for n, v in logs.items()}
        return list(self._final.history)

    def evaluate(self, model: keras.Model) -> dict[str, Any]:
        """Evaluate the saved weights that ``--evaluate`` names, instead of `fit`.

        The data are the validation data, or the training data if there are none. The chief writes
        the results to ``evaluation.json`` in the job folder.

        Parameters
        ----------
        model
            A model that `build_model` returned; it is given the saved weights.

        Returns
        -------
        dict of str to float or numpy.ndarray
            The loss and the metrics.

        Raises
        ------
        ModelError
            If the weights are not of this model.
        StorageError
            If they cannot be read.
        """
        check_same_strategy(model, self.strategy, "evaluate()")
        data, path = self._loaded.training, str(self._settings.evaluate)
        restore_weights(model, path, self._joined.saved, self._cluster)
        self._report_ready(step=0)
        with explain.step_errors(self._find_bad_record):
            replicas = ModelReplicas(
                model, self.strategy, synchronize=self._settings.sync_batch_norm
            )
            evaluator = Evaluator(model, StepFunctions(replicas), self._cluster, data)
            logs = evaluator.evaluate() or {}
        self._report.log(f"evaluation of {path}: {format_results(logs)}")
        if self.is_chief:
            facts = self._facts() | {"evaluated": path, "logs": logs, "data": data.describe()}
            self._results = {"evaluation": write_evaluation(self._folders.job, facts)}
        return logs

    def save_model(self, model: keras.Model) -> None:
        """Write the trained model and ``summary.json``; only the chief may call it.

        Raises
        ------
        StorageError
            If the job folder cannot be written.
        TrainerError
            If Keras can write the model in no format.
        """
        assert self._final is not None, "fit() comes before save_model()"
        folders, final, data = self._folders, self._final, self._loaded
        # The folder may also have a model of an earlier run that was stopped before its end.
        files = files_in(folders.model)
        if files and summary_matches(folders.job, final.history):
            self._report.warn(nothing_to_train_message(final))
        else:
            files = save_model(model, folders.model, self._report)
        first_step = self._progress.step
        summary = run_summary(data, final, self._cluster, self._tasks, first_step=first_step) | {
            "model": folders.model,
            "model_files": files,
            "timing": self._loop.timing if self._loop else None,
            "gradient_bytes": gradient_bytes(model),
            "machine": machine_facts(),
            "data_modules": self._data_modules,
        }
        summary |= self._results
        self._results |= {"model": folders.model, "summary": write_summary(folders.job, summary)}
        self._report.log(f"model: {folders.model}")
        if hint := input_hint(summary["timing"], data.training.source.get("options")):
            self._report.log(hint)

    def __exit__(self, kind: object, *_: object) -> None:
        """Wait for all tasks, unless this one failed."""
        if kind is None and (self._final is not None or self._settings.evaluate):
            if self._chief_side is not None and (newest := self._joined.checkpoints.newest):
                self._chief_side.wait(newest, lambda: self._stop.received)
            self._cluster.barrier()
            step = self._final.step if self._final else 0
            self._report.event("end", step=step, **self._results)

    @property
    def _loaded(self) -> TrainingData:
        assert self._data is not None, "load_data() comes first"
        return self._data

    def _find_bad_record(self) -> str | None:
        """Look for a record of this task's that cannot be read or parsed."""
        data = self._loaded
        for part in filter(None, (data.training, data.validation, data.test)):
            step = self._loop.step - part.first_step if self._loop and part is data.training else 0
            if problem := part.find_bad_record(self._cluster.replica_ids, step):
                return problem
        return None

    def _warn_of_model(self, model: keras.Model) -> None:
        """Warn of what depends on the number of replicas, and of files that cannot be written."""
        replicas, synchronized = self._cluster.replicas, self._settings.sync_batch_norm
        notes = replica_count_warnings(model, replicas, synchronized=synchronized)
        for note in [*notes, *(self._step_notes if replicas > 1 else [])]:
            self._report.warn(note)
        if not model.trainable_variables:
            self._report.warn("the model has no trainable weights: no gradients are applied")
        if self.is_chief and (problem := saving_problem(model)):
            self._report.warn(
                f"model.keras will not be written, only weights and a SavedModel: {problem}"
            )

    def _facts(self) -> dict[str, Any]:
        return run_facts(self._loaded, self._settings.epochs, self._cluster)

    def _report_ready(self, **facts: Any) -> None:
        self._report.event("ready", **self._facts() | facts, tasks=len(self._tasks))

    @property
    def _tasks(self) -> list[str]:
        """The names of the tasks that train, with those of parameter servers."""
        servers = self._joined.servers
        return servers.tasks if servers else list(self._cluster.role.peers)
