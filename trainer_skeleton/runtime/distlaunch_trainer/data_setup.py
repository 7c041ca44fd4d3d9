"""The data of a run: opened, dealt out, and held to the order of the run that is resumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import keras
import tensorflow as tf

from .audit import Audit, is_audited
from .checkpoints import TrainingState
from .cluster import Cluster
from .errors import DataError, PlanError
from .explain import from_user
from .options import Settings
from .pipeline import Data, Items, Order, Pipeline
from .plan import Plan, Shares, coverage_note
from .report import Report
from .sources import Arrays, Records
from .user_dataset import Positions, open_dataset

Source = Records | Arrays | tf.data.Dataset
_Value = TypeVar("_Value", int, str)


@dataclass(frozen=True)
class Dealt:
    """The data of a run, and its progress.

    Attributes
    ----------
    training, validation
        The data; validation may be None.
    progress
        Where the run begins or goes on.
    audit
        Where to record what is trained on, if an audit is requested.
    """

    training: Data
    validation: Data | None
    progress: TrainingState
    audit: Audit | None


class Dealer:
    """Deals the user's data out to the tasks; every method is a collective.

    Parameters
    ----------
    settings
        The options of the run.
    cluster
        The tasks.
    job_dir
        Where an index may be kept.
    report
        Where to log what follows from the data and the cluster.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        job_dir: str,
        report: Report,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._job_dir = job_dir
        self._report = report

    def deal(
        self,
        start: TrainingState | None,
        load_training: Callable[[], Any],
        load_validation: Callable[[], Any],
    ) -> Dealt:
        """Return the data, dealt out as for the run that left off at ``start``.

        Raises
        ------
        DataError
            If it cannot be used, or is other data than before.
        PlanError
            If data, batch and cluster do not go together, or are others than before.
        """
        seed = resolve_option("--seed", self._settings.seed, start and start.seed, 0)
        keras.utils.set_random_seed(seed)  # also what a data set of the user's own shuffles by
        source = _source("training", load_training)
        if source is None:
            raise DataError("training() in trainer/data.py returned None: return Records or Arrays")
        start = self._progress(start, seed)
        if isinstance(source, tf.data.Dataset):
            data, audit = self._own_dataset(source, start)
        else:
            data, audit = self._planned(source, start)
        progress = self._counted(start, data.plan)
        if note := coverage_note(data.plan, progress.steps_per_epoch):
            self._report.warn(note)
        return Dealt(data, self._validation(progress, load_validation), progress, audit)

    def _progress(self, start: TrainingState | None, seed: int) -> TrainingState:
        """Return what is known of the run before its data is: 0 for what is to be counted."""
        settings = self._settings
        return TrainingState(
            step=start.step if start else 0,
            examples=start.examples if start else 0,
            global_batch=self._asked_batch(start),
            shards=resolve_option("--shards", settings.shards, start and start.shards, 12),
            shard_policy=resolve_option(
                "--shard-policy", settings.shard_policy, start and start.shard_policy, "auto"
            ),
            seed=seed,
            shuffle=resolve_option("--shuffle", settings.shuffle, start and start.shuffle, 10_000),
            steps_per_epoch=resolve_option(
                "--steps-per-epoch", settings.steps_per_epoch, start and start.steps_per_epoch, 0
            ),
            precision=settings.precision or "float32",
            **{
                name: getattr(start, name)
                for name in ("learning_rate", "history", "stopped", "callbacks")
                if start
            },
        )

    def _asked_batch(self, start: TrainingState | None) -> int:
        """Return the requested or earlier global batch, 0 if none."""
        batch, replicas = self._settings.global_batch_size, self._cluster.replicas
        if self._settings.batch_size is not None:
            batch = self._settings.batch_size * replicas
            if start and batch != start.global_batch:
                raise PlanError(
                    f"this job was started with a global batch of {start.global_batch} and cannot "
                    f"continue with {batch} (--batch-size {self._settings.batch_size} on "
                    f"{replicas} replicas): leave --batch-size out, or use --no-resume to start "
                    "from scratch"
                )
        return resolve_option("--global-batch-size", batch, start and start.global_batch, 0)

    def _open(self, source: Records | Arrays, *, numbered: bool = False) -> Items:
        items = source.open(self._cluster, self._job_dir, numbered=numbered)
        if note := items.empty_files_note():
            self._report.warn(note)
        return items

    def _planned(self, source: Records | Arrays, start: TrainingState) -> tuple[Data, Audit | None]:
        if self._settings.shard_policy:
            raise PlanError(
                "--shard-policy is for a tf.data.Dataset of your own: Records and Arrays are dealt "
                "out evenly by themselves; leave it out"
            )
        items = self._open(source, numbered=is_audited())
        batch = start.global_batch or 32 * self._cluster.replicas
        plan = Plan(items.examples, batch, self._cluster.replicas, start.shards)
        audit = None
        if is_audited():
            audit = Audit(
                self._report,
                examples=plan.examples,
                index_bytes=items.index_bytes,
                data_bytes=items.data_bytes,
            )
        pipeline = Pipeline(items, plan, Order(start.seed, start.shuffle))
        return Data(pipeline, plan, items.describe()), audit

    def _own_dataset(
        self, batches: tf.data.Dataset, start: TrainingState
    ) -> tuple[Data, Audit | None]:
        policy = start.shard_policy
        data, rows = open_dataset(
            batches, policy, self._cluster, self._report, numbered=is_audited()
        )
        batch = data.plan.global_batch
        if start.global_batch not in {0, batch}:
            raise PlanError(
                f"the data set's batch({batch}) is the global batch, and {start.global_batch} is "
                f"requested: change batch() in trainer/data.py, or leave the option out"
            )
        if start.step % data.plan.steps:
            self._report.warn(
                "a data set of your own is entered by skipping what was read: where it shuffles, "
                "the epoch that was interrupted may see examples twice or never; later ones do not"
            )
        if not is_audited():
            return data, None
        positions = Positions(rows, self._cluster, data.plan.examples)
        return data, Audit(self._report, examples=positions.examples, numbers_of=positions)

    def _counted(self, start: TrainingState, plan: Plan | Shares) -> TrainingState:
        """Return the progress with what is known of the data."""
        if start.examples not in {0, plan.examples}:
            raise DataError(
                f"this job was started on {start.examples:,} examples and now finds "
                f"{plan.examples:,}: bring the data back, or use --no-resume to start from scratch"
            )
        return replace(
            start,
            examples=plan.examples,
            global_batch=plan.global_batch,
            steps_per_epoch=start.steps_per_epoch or plan.steps,
        )

    def _validation(self, progress: TrainingState, load: Callable[[], Any]) -> Data | None:
        source = _source("validation", load)
        if source is None:
            return None
        try:
            if isinstance(source, tf.data.Dataset):
                return open_dataset(source, progress.shard_policy, self._cluster, self._report)[0]
            items = self._open(source)
            plan = Plan(
                items.examples, progress.global_batch, self._cluster.replicas, progress.shards
            )
        except PlanError as problem:
            raise PlanError(f"validation data: {problem}") from problem
        return Data(Pipeline(items, plan, Order()), plan, items.describe())


def resolve_option(
    name: str, requested: _Value | None, saved: _Value | None, default: _Value
) -> _Value:
    """Return an option's value; a run that is resumed keeps what it was started with.

    Raises
    ------
    PlanError
        If another value is requested.
    """
    if saved is None:
        return default if requested is None else requested
    if requested is not None and requested != saved:
        raise PlanError(
            f"this job was started with {name} {saved} and cannot continue with {requested}: "
            f"use {name} {saved}, or --no-resume to start from scratch"
        )
    return saved


def _source(name: str, function: Callable[[], Any]) -> Source | None:
    """Return what one of the functions of ``trainer/data.py`` gives."""
    source = from_user(f"{name}()", function)
    if source is not None and not isinstance(source, (Records, Arrays, tf.data.Dataset)):
        raise DataError(
            f"{name}() in trainer/data.py returned {type(source).__name__}: return Records(...) or "
            f"Arrays(...) of distlaunch_trainer, or a tf.data.Dataset"
        )
    return source
