"""The data of a run: opened, sharded, and in the order of the run that is resumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.errors import DataError, PlanError
from distlaunch_trainer.input.examples.example_source import Examples, ExampleSource, InputOptions
from distlaunch_trainer.input.order.pipeline import Pipeline
from distlaunch_trainer.input.order.plan import BatchPlan, coverage_note
from distlaunch_trainer.input.user_data.project_batches import (
    BatchSource,
    open_project_batches,
    source_of,
)
from distlaunch_trainer.input.user_data.user_batches import Opening, UserBatches
from distlaunch_trainer.options import Settings
from distlaunch_trainer.report.audit import Audit, is_audited
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.task.explain import from_user
from distlaunch_trainer.training_state import Progress, RunOptions, TrainingState

from .batches import Data
from .run_options import resume_on_data, run_options, with_data

Source = Examples | BatchSource
AnyData = Data | UserBatches


@dataclass(frozen=True)
class TrainingData:
    """The data of a run, and its options as these decide them."""

    training: AnyData
    validation: AnyData | None
    options: RunOptions  # what stays the same when the run resumes
    audit: Audit | None  # where to record what is trained on, if an audit is requested
    test: AnyData | None = None


@dataclass(frozen=True)
class _Setup:
    """What all data are opened with: options, tasks, folder of the index, and log."""

    settings: Settings
    cluster: Cluster
    job_dir: str
    report: Report

    def report_input(self, what: Sequence[str], effective: Sequence[str] = ()) -> None:
        """Log how the training data are read; refuse options that have no effect."""
        cache = self.settings.cache
        if "cache" in effective:
            places = {None: "no cache", "memory": "cache in memory"}
            what = [*what, places.get(cache, f"cache in {cache}")]
        elif cache is not None:
            raise PlanError(f"--cache has no effect on {what[0]}: leave it out")
        self.report.log(f"input: {', '.join(what)}")


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
    keras.utils.set_random_seed(options.seed)  # a user's data set shuffles by it too
    source = _source("training", training, options)
    if source is None:
        raise DataError("training() in trainer/data.py returned None: return Records or Arrays")
    if isinstance(source, BatchSource):
        progress = start.progress if start else Progress()
        data, audit = _user_training(setup, source, options, progress)
    else:
        data, audit = _planned(setup, source, options)
    options = resume_on_data(with_data(options, data), start, report.warn)
    data = replace(data, first_step=options.first_step)
    if isinstance(data, UserBatches) and isinstance(source, BatchSource):
        is_resumed = start is not None and start.progress.step > options.first_step
        if is_resumed and (note := source.resume_note(repeats=data.repeats)):
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


def _check_rows_are_known(data: AnyData, replicas: int) -> None:
    """Check that each replica knows which rows of a global batch it has, for --same-random."""
    if isinstance(data, UserBatches) and data.form == "own":
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
    settings = replace(settings, scale_learning_rate=False, warmup_epochs=None)
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
    settings = setup.settings
    options = InputOptions(settings.cache, numbered, settings.check_numerics)
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
    setup.report_input(what, items.input_options)
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
    order = {"seed": options.seed, "shuffle_buffer": options.shuffle}
    pipeline = Pipeline(items, plan, static_rows=_static_rows(setup, plan), **order)
    facts = {**items.facts, "options": list(items.input_options)}
    return Data(pipeline, plan, facts), audit


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


def _static_rows(setup: _Setup, plan: Any) -> int | None:
    """Return the rows of each replica on a TPU, by a plan or Keras's adapter; None elsewhere."""
    if not setup.cluster.needs_static_shapes:
        return None
    batch = plan.global_batch if isinstance(plan, BatchPlan) else plan.batch_size
    if batch is None:
        raise PlanError(
            "a TPU trains on batches of one size: end the data set with "
            ".batch(n, drop_remainder=True)"
        )
    replicas = setup.cluster.replicas
    if batch % replicas:
        raise PlanError(
            f"a TPU trains on batches of one size: the global batch of {batch} is not divisible "
            f"by {replicas} replicas"
        )
    return batch // replicas


def _user_batches(
    setup: _Setup, source: BatchSource, options: RunOptions, progress: Progress | None = None
) -> UserBatches:
    """Return batches that the user has made, sharded by the policy.

    Those to train on have a ``progress``.
    """
    cluster, steps = setup.cluster, options.steps_per_epoch or None
    repeats = not source.is_endless and steps not in {None, source.adapter.num_batches}
    if progress and progress.position:
        repeats = progress.position[2:] == [0]
    opening = Opening(
        *(cluster, setup.report, f"the {source.kind} of trainer/data.py", "--shard-policy"),
        steps=steps if repeats or source.is_endless else None,
        repeats=repeats,
        is_endless=source.is_endless,
        counts=True,
        audits=progress is not None and is_audited(),
        parts={"reads_ahead": True, "static_rows": _static_rows(setup, source.adapter)},
    )
    return open_project_batches(source, opening, options.shard_policy)


def _user_training(
    setup: _Setup, source: BatchSource, options: RunOptions, progress: Progress
) -> tuple[UserBatches, Audit | None]:
    """Return batches to train on that the user has made."""
    setup.report_input([f"the {source.kind} of trainer/data.py"])
    if is_audited() and source.is_endless:
        raise PlanError(
            f"--audit counts the rows of a pass, and the {source.kind} has no end that is known: "
            "leave it out, or return a tf.data.Dataset or PyDataset that ends"
        )
    data = _user_batches(setup, source, options, progress)
    batch = data.plan.global_batch
    if options.global_batch not in {0, batch}:
        raise PlanError(
            f"the {source.kind}'s batch() makes a global batch of {batch}, and "
            f"{options.global_batch} is requested: change batch() in trainer/data.py, or leave "
            f"the option out"
        )
    if data.plan.steps is None and setup.settings.steps_per_epoch and not source.is_endless:
        setup.report.log(
            f"the length of the {source.kind} is unknown, and so is what --steps-per-epoch "
            f"{setup.settings.steps_per_epoch} leaves out or repeats: end it with "
            ".apply(tf.data.experimental.assert_cardinality(n)), or leave the option out"
        )
    return data, data.audit(setup.report) if is_audited() else None


def _unshuffled(
    setup: _Setup, name: str, source: Source | None, options: RunOptions
) -> AnyData | None:
    """Return the data of ``validation()`` or ``test()``, in their order."""
    if source is None:
        return None
    try:
        if isinstance(source, BatchSource):
            source.check_end(name)
            return _user_batches(setup, source, replace(options, steps_per_epoch=0))
        items = _open(setup, source)
        plan = _batch_plan(setup, items, options.global_batch, options.shards)
        pipeline = Pipeline(items, plan, static_rows=_static_rows(setup, plan))
        return Data(pipeline, plan, items.facts)
    except PlanError as problem:
        raise PlanError(f"{name} data: {problem}") from problem


def _source(name: str, function: Callable[[], Any], options: RunOptions) -> Source | None:
    """Return what one of the functions of ``trainer/data.py`` gives."""
    value = from_user(f"{name}()", function)
    if value is None or isinstance(value, Examples):
        return value
    source = source_of(name, value, function, shuffles=options.shuffle > 0)
    if source is not None:
        return source
    raise DataError(
        f"{name}() in trainer/data.py returned {type(value).__name__}: return Records(...) or "
        "Arrays(...) of distlaunch_trainer, a tf.data.Dataset, a keras.utils.PyDataset or a "
        "generator"
    )
