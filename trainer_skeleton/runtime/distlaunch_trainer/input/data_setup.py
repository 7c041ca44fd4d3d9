"""The data of a run: opened, sharded, and in the order of the run that is resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.errors import DataError, PlanError
from distlaunch_trainer.input.examples.example_source import Examples, ExampleSource, InputOptions
from distlaunch_trainer.input.order.pipeline import Pipeline
from distlaunch_trainer.input.order.plan import BatchPlan, TaskBatchPlan, coverage_note
from distlaunch_trainer.input.user_data.python_data import generator_source, py_dataset_source
from distlaunch_trainer.input.user_data.shard_policy import open_batches
from distlaunch_trainer.input.user_data.user_dataset import NO_END, BatchSource, dataset_source
from distlaunch_trainer.options import Settings
from distlaunch_trainer.report.audit import Audit, is_audited
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.task.explain import from_user
from distlaunch_trainer.training_state import RunOptions, TrainingState

from .batches import Data
from .run_options import resume_on_data, run_options, with_data

Source = Examples | BatchSource


@dataclass(frozen=True)
class TrainingData:
    """The data of a run, and its options as these decide them."""

    training: Data
    validation: Data | None
    options: RunOptions  # what stays the same when the run resumes
    audit: Audit | None  # where to record what is trained on, if an audit is requested
    test: Data | None = None


@dataclass(frozen=True)
class _Setup:
    """What all data are opened with: options, tasks, folder of the index, and log."""

    settings: Settings
    cluster: Cluster
    job_dir: str
    report: Report

    @property
    def input_options(self) -> InputOptions:
        names = ("cache", "parallel_reads", "parallel_calls", "prefetch", "check_numerics")
        return InputOptions(**{name: getattr(self.settings, name) for name in names})

    def report_input(
        self, what: Sequence[str], effective: Sequence[str] = (), reads: int = 0
    ) -> None:
        """Log how the training data are read; refuse options that have no effect."""
        if option := self.input_options.without_effect(effective):
            raise PlanError(f"{option} has no effect on {what[0]}: leave it out")
        self.report.log(
            f"input: {', '.join([*what, *self.input_options.describe(effective, reads)])}"
        )


def load_data(
    settings: Settings,
    cluster: Cluster,
    job_dir: str,  # where an index may be kept
    report: Report,
    *,
    start: TrainingState | None,  # where the run stopped that this one resumes
    training: Callable[[], Any],
    validation: Callable[[], Any],
    test: Callable[[], Any] = lambda: None,
) -> TrainingData:
    """Shard the data that the user's functions return over the tasks; a collective.

    They return `Examples` such as Records, a ``tf.data.Dataset``, a ``keras.utils.PyDataset`` or a
    generator; `validation` and `test` may return None.
    """
    setup = _Setup(settings, cluster, job_dir, report)
    options = run_options(settings, cluster.replicas, start and start.options)
    first_step = start.progress.step - start.options.first_step if start else 0
    keras.utils.set_random_seed(options.seed)  # a user's data set shuffles by it too
    source = _source("training", training, options)
    if source is None:
        raise DataError("training() in trainer/data.py returned None: return Records or Arrays")
    if isinstance(source, BatchSource):
        data, audit = _user_batches(setup, source, options, first_step), None
    else:
        data, audit = _planned(setup, source, options)
    options = resume_on_data(with_data(options, data), start, report.warn)
    data = replace(data, first_step=options.first_step)
    step = start.progress.step - options.first_step if start else 0
    if isinstance(source, BatchSource) and (note := _resume_note(source, data, step)):
        report.warn(note)
    if settings.same_random:
        _check_rows_are_known(data, cluster.replicas)
    if note := coverage_note(data.plan, options.steps_per_epoch):
        report.warn(note)
    plan = data.plan
    is_chosen = settings.global_batch_size or settings.batch_size
    if is_chosen and isinstance(plan, BatchPlan) and plan.global_batch > plan.examples:
        report.warn(
            f"a global batch of {plan.global_batch:,} is larger than the {plan.examples:,} "
            "examples: each epoch is one step; use a smaller one"
        )
    in_order = replace(options, shuffle=0)
    validation_data, test_data = (
        _unshuffled(setup, name, _source(name, function, in_order), options)
        for name, function in (("validation", validation), ("test", test))
    )
    return TrainingData(data, validation_data, options, audit, test_data)


def _check_rows_are_known(data: Data, replicas: int) -> None:
    """Check that each replica knows which rows of a global batch it has, for --same-random."""
    if isinstance(data.plan, TaskBatchPlan):
        raise PlanError(
            "--same-random needs batches that all tasks divide: leave --shard-policy out, or use "
            "--shard-policy data"
        )
    if data.plan.global_batch % replicas:
        raise PlanError(
            f"--same-random: {replicas} replicas do not divide the global batch of "
            f"{data.plan.global_batch}: use --global-batch-size "
            f"{-(-data.plan.global_batch // replicas) * replicas}"
        )


def load_evaluation_data(
    settings: Settings,
    cluster: Cluster,
    job_dir: str,
    report: Report,
    *,
    training: Callable[[], Any],
    validation: Callable[[], Any],
    test: Callable[[], Any] = lambda: None,
) -> TrainingData:
    """Shard the data that ``--evaluate-on`` names over the tasks, as `TrainingData.training`.

    By default they are the validation data, or the training data if there are none. The parameters
    are those of `load_data`.
    """
    setup = _Setup(settings, cluster, job_dir, report)
    options = replace(run_options(settings, cluster.replicas, None), shuffle=0)
    keras.utils.set_random_seed(options.seed)
    functions = {"validation": validation, "training": training, "test": test}
    names = [settings.evaluate_on] if settings.evaluate_on else ["validation", "training"]
    sources = ((name, _source(name, functions[name], options)) for name in names)
    name, source = next(((name, each) for name, each in sources if each is not None), ("", None))
    batch = options.global_batch or 32 * cluster.replicas
    data = _unshuffled(setup, name, source, replace(options, global_batch=batch))
    if data is None:
        raise DataError(f"{names[-1]}() in trainer/data.py has to return data to evaluate")
    return TrainingData(data, None, with_data(options, data), None)


def _open(setup: _Setup, source: Examples, *, numbered: bool = False) -> ExampleSource:
    options = replace(setup.input_options, numbered=numbered)
    items = source.open(setup.cluster, setup.job_dir, options)
    for problem in items.warnings:
        setup.report.warn(problem)
    return items


def _planned(setup: _Setup, source: Examples, options: RunOptions) -> tuple[Data, Audit | None]:
    """Return examples, sharded by the plan."""
    if setup.settings.shard_policy:
        raise PlanError(
            "--shard-policy is for a tf.data.Dataset: leave it out, Records, Arrays and the like "
            "are always sharded evenly"
        )
    items = _open(setup, source, numbered=is_audited())
    what = [f"{items.examples:,} examples of {type(source).__name__}", *items.input_facts()]
    setup.report_input(what, items.input_options, items.reads_at_once)
    batch = options.global_batch or 32 * setup.cluster.replicas
    plan = _batch_plan(setup, items, batch, options.shards)
    audit = None
    if is_audited():
        audit = Audit(
            setup.report,
            examples=plan.examples,
            index_bytes=items.index_bytes,
            data_bytes=items.data_bytes,
        )
    pipeline = Pipeline(items, plan, seed=options.seed, shuffle_buffer=options.shuffle)
    facts = {**items.facts, "options": list(items.input_options)}
    return _with_static_rows(setup, Data(pipeline, plan, facts)), audit


def _batch_plan(setup: _Setup, items: ExampleSource, batch: int, shards: int) -> BatchPlan:
    """Return the plan of records or arrays; on a TPU, of those that fill a batch."""
    examples = items.examples
    if setup.cluster.needs_static_shapes and examples > batch and examples % batch:
        examples -= examples % batch
        setup.report.warn(
            f"a TPU trains on batches of one size: the last {items.examples - examples} of "
            f"{items.examples:,} examples are left out of each epoch"
        )
    return BatchPlan(examples, batch, setup.cluster.replicas, shards)


def _with_static_rows(setup: _Setup, data: Data, source: BatchSource | None = None) -> Data:
    """Let the batches for a TPU have their number of rows in their shapes."""
    if not setup.cluster.needs_static_shapes:
        return data
    specs = tf.nest.flatten(source.one_pass.element_spec) if source else []
    if any(spec.shape.rank == 0 or spec.shape[0] is None for spec in specs):
        raise PlanError(
            "a TPU trains on batches of one size: end the data set with "
            ".batch(n, drop_remainder=True)"
        )
    batch, replicas = data.plan.global_batch, setup.cluster.replicas
    if batch % replicas:
        raise PlanError(
            f"a TPU trains on batches of one size: the global batch of {batch} is not divisible "
            f"by {replicas} replicas"
        )
    data.pipeline.static_rows = batch // replicas
    return data


def _user_batches(setup: _Setup, source: BatchSource, options: RunOptions, first_step: int) -> Data:
    """Return batches that the user has made, sharded by the policy."""
    setup.report_input([f"the {source.kind} of trainer/data.py"])
    if is_audited():
        raise PlanError(
            f"--audit follows the numbers of examples, which the {source.kind} of training() has "
            f"not: leave it out, or return Records, Arrays or other examples"
        )
    data = open_batches(
        source,
        options.shard_policy,
        setup.cluster,
        setup.report,
        steps_per_epoch=options.steps_per_epoch,
        first_step=first_step,
    )
    data.pipeline.batches_ahead = setup.input_options.batches_ahead
    batch = data.plan.global_batch
    if options.global_batch not in {0, batch}:
        raise PlanError(
            f"the {source.kind}'s batch() makes a global batch of {batch}, and "
            f"{options.global_batch} is requested: change batch() in trainer/data.py, or leave "
            f"the option out"
        )
    data = _with_static_rows(setup, data, source)
    if data.plan.steps is None and setup.settings.steps_per_epoch and not source.is_endless:
        setup.report.log(
            f"the length of the {source.kind} is unknown, and so is what --steps-per-epoch "
            f"{setup.settings.steps_per_epoch} leaves out or repeats: end it with "
            ".apply(tf.data.experimental.assert_cardinality(n)), or leave the option out"
        )
    return data


def _resume_note(source: BatchSource, data: Data, step: int) -> str | None:
    """Return a warning where the examples of an interrupted epoch may be seen twice or never."""
    if not step or source.resumes_exactly:
        return None
    if source.is_endless:
        return (
            f"the {source.kind} {NO_END}, and starts from its beginning when a run is resumed: "
            "examples may be seen more often or less often than others"
        )
    if data.plan.steps and step % data.plan.steps == 0:
        return None
    return (
        f"what was read is skipped: if the {source.kind} shuffles, examples of the interrupted "
        "epoch may be seen twice or never; later epochs are whole"
    )


def _unshuffled(
    setup: _Setup, name: str, source: Source | None, options: RunOptions
) -> Data | None:
    """Return the data of ``validation()`` or ``test()``, in their order."""
    if source is None:
        return None
    try:
        if isinstance(source, BatchSource):
            if source.is_endless:
                raise DataError(
                    f"the {source.kind} of the {name} data {NO_END}: remove .repeat(), end it with "
                    ".take(n), or return Arrays or a PyDataset of known length"
                )
            data = open_batches(source, options.shard_policy, setup.cluster, setup.report)
            return _with_static_rows(setup, data, source)
        items = _open(setup, source)
        plan = _batch_plan(setup, items, options.global_batch, options.shards)
        data = Data(Pipeline(items, plan), plan, items.facts)
        return _with_static_rows(setup, data)
    except PlanError as problem:
        raise PlanError(f"{name} data: {problem}") from problem


def _source(name: str, function: Callable[[], Any], options: RunOptions) -> Source | None:
    """Return what one of the functions of ``trainer/data.py`` gives."""
    value = from_user(f"{name}()", function)
    if value is None or isinstance(value, Examples):
        return value
    if isinstance(value, tf.data.Dataset):
        return dataset_source(value)
    if isinstance(value, keras.utils.PyDataset):
        shuffles = options.shuffle > 0
        return from_user(
            f"{name}()", lambda: py_dataset_source(value, options.seed, shuffles=shuffles)
        )
    restart = value if callable(value) else function
    generator = from_user(f"{name}()", restart) if callable(value) else value
    if isinstance(generator, Iterator):
        return from_user(f"{name}()", lambda: generator_source(generator, restart))
    raise DataError(
        f"{name}() in trainer/data.py returned {type(value).__name__}: return Records(...) or "
        "Arrays(...) of distlaunch_trainer, a tf.data.Dataset, a keras.utils.PyDataset or a "
        "generator"
    )
