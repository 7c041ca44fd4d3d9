"""``fit`` of Keras on all tasks of a cluster: of a script, or of a program that runs already."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.cluster import devices
from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.cluster.role import Role, role_from
from distlaunch_trainer.cluster.strategy import connect, describe
from distlaunch_trainer.errors import TrainerError
from distlaunch_trainer.input.downloads import share_downloads
from distlaunch_trainer.input.user_data.user_dataset import keep_order
from distlaunch_trainer.keras_compat import fit_calls
from distlaunch_trainer.report.report import Report, write_summary
from distlaunch_trainer.step import random_draws
from distlaunch_trainer.task import explain, stop_signal
from distlaunch_trainer.task.job_folders import Folders, folders_from
from distlaunch_trainer.task.stop_signal import StopSignal
from distlaunch_trainer.task.storage import is_remote, make_folder, remove

from . import remedies
from .chief_files import find_own_folder, redirected_writes
from .default_strategy import set_strategy
from .program import LEGACY_KERAS, Program
from .runtime_settings import ignore_late_settings
from .session import Session

_NOTE = (
    "fit() runs on {replicas} replicas: every task runs the script and trains on its rows of each "
    "batch; files that the script opens itself are written by every task"
)

_LEGACY_NOTE = (
    "fit() of tf_keras runs on {replicas} replicas without changes to it: sharding, uneven batches "
    "and clipping are as TensorFlow does them; a stop costs the epoch since its start"
)

_sessions: list[Session] = []  # of this process, one at most


@dataclass(frozen=True)
class FitOptions:
    """How ``fit`` of a script trains.

    Attributes
    ----------
    job_dir
        Folder or ``gs://`` URL to write to; None for that of ``AIP_MODEL_DIR``, or ``./job``.
    resume
        Whether to resume from the checkpoints of the job folder, or to remove them.
    allow_cpu
        Whether to train if TensorFlow sees fewer GPUs than the machine has.
    gpu_memory_growth
        Whether to allocate GPU memory when it is needed instead of all of it at the start.
    checkpoint_every
        Steps between checkpoints; 0 for one at the end of each epoch only.
    step_timeout
        Seconds without a finished step after which a task ends, 0 for none; None for 600, and for
        none of a task alone.
    sync_batch_norm
        Whether all batch normalizations take their statistics from all replicas.
    same_random
        Whether layers draw the same random numbers for a row on any number of replicas.
    """

    job_dir: str | None = None
    resume: bool = True
    allow_cpu: bool = False
    gpu_memory_growth: bool = False
    checkpoint_every: int = 0
    step_timeout: float | None = None
    sync_batch_norm: bool = False
    same_random: bool = False

    @classmethod
    def of(cls, options: argparse.Namespace) -> FitOptions:
        """Return the options of a command line."""
        return cls(**{field.name: getattr(options, field.name) for field in fields(cls)})


def run_program(program: Program, options: FitOptions) -> None:
    """Run a program as one task of the cluster of ``TF_CONFIG``.

    Raises
    ------
    TrainingStopped
        If a task received SIGTERM during ``fit``; the chief has saved.
    TrainerError
        If the cluster cannot be formed, a checkpoint cannot be read or written, or the program
        fails.
    SystemExit
        If the program calls ``sys.exit`` with another code than 0.
    """
    # What the program sets after the strategy is made would be too late.
    if "set_memory_growth(" in program.source():
        options = replace(options, gpu_memory_growth=True)
    with _cluster_session(options, _library()), explain.script_errors(remedies.remedy):
        program.run()


def fit_script(script: str, args: Sequence[str] = (), **options: Any) -> None:
    """Run a script whose ``fit`` trains on all tasks of the cluster of ``TF_CONFIG``.

    Every task calls this, at most once in a process, before TensorFlow has computed anything.

    Parameters
    ----------
    script
        The path of a Python file.
    args
        Its arguments.
    **options
        See `FitOptions`.

    Raises
    ------
    TrainingStopped
        If a task received SIGTERM during ``fit``; the chief has saved.
    TrainerError
        If the cluster cannot be formed, a checkpoint cannot be read or written, or the script
        fails.
    """
    run_program(Program(script, None, tuple(args)), FitOptions(**options))


@contextlib.contextmanager
def distributed_fit(**options: Any) -> Iterator[None]:
    """Have ``fit`` of Keras in here train on all tasks of the cluster of ``TF_CONFIG``.

    For programs that another launcher has started, such as the function of a Ray Train worker.
    Every task enters this, at most once in a process, before TensorFlow has computed anything, and
    creates its models in here. At the end the chief writes the model that was trained last.

    Parameters
    ----------
    **options
        See `FitOptions`.

    Raises
    ------
    TrainingStopped
        If a task received SIGTERM during ``fit``; the chief has saved.
    TrainerError
        If the cluster cannot be formed, or a checkpoint cannot be read or written.
    """
    # Ray Train sets it, and then tf.keras is tf_keras where that is first used after this.
    os.environ.pop(LEGACY_KERAS, None)
    with _cluster_session(FitOptions(**options), keras):
        yield


@contextlib.contextmanager
def _cluster_session(options: FitOptions, library: ModuleType) -> Iterator[None]:
    """Form the cluster, have ``fit`` in here train on it, and write what it has trained."""
    if _sessions:
        raise TrainerError(
            "fit_script() and distributed_fit() change Keras for the rest of a process, and this "
            "one has called one of them: call it in a new process"
        )
    keras_compat.check_version()
    role = role_from(os.environ)
    folders = _absolute(folders_from(options.job_dir, os.environ))
    report = Report(role, folders.logs)
    stop_signal.end_if_pending()
    devices.prepare(
        role.name,
        os.environ,
        allow_cpu=options.allow_cpu,
        memory_growth=options.gpu_memory_growth,
    )
    cluster = Cluster(role, connect(role))
    report.log(describe(cluster.strategy, role))
    ignore_late_settings(report.warn)
    with StopSignal() as stop:
        session = _session(library, cluster, report, stop, folders=folders, options=options)
        _sessions.append(session)
        _install(session, library, options)
        own_folder = find_own_folder(session.rendezvous, is_chief=role.is_chief)
        writes = (
            contextlib.nullcontext() if role.is_chief else redirected_writes(library, own_folder)
        )
        with writes:
            yield
            session.rendezvous.meet("the end of the script")
            # In its scope, the chief could not save alone.
            tf.distribute.experimental_set_strategy(None)
            results = _finish(session, folders, role)
        cluster.barrier()
        report.event("end", step=session.step, **results)


def _session(
    library: ModuleType,
    cluster: Cluster,
    report: Report,
    stop: StopSignal,
    *,
    folders: Folders,
    options: FitOptions,
) -> Session:
    """Return the session of a script that uses Keras 3 or tf_keras."""
    if cluster.role.is_chief:
        is_restart = (os.environ.get("DISTLAUNCH_RESTARTS") or "0") != "0"
        if not options.resume and not is_restart:
            remove(folders.checkpoints)
        make_folder(folders.job)
        make_folder(folders.checkpoints)
    if library is keras:
        return Session(
            cluster,
            report,
            stop,
            checkpoints_dir=folders.checkpoints,
            checkpoint_every=options.checkpoint_every,
            step_timeout=options.step_timeout,
            sync_batch_norm=options.sync_batch_norm,
        )
    from .legacy import LegacySession  # needs tf_keras

    return LegacySession(cluster, report, stop, checkpoints_dir=folders.checkpoints)


def _install(session: Session, library: ModuleType, options: FitOptions) -> None:
    """Change Keras, TensorFlow and Python's random numbers for the rest of this process."""
    cluster, report = session.cluster, session.report
    random_draws.install(same=options.same_random)
    # All tasks must draw the same numbers, e.g. to shuffle the data alike.
    keras.utils.set_random_seed(0)
    session.install()
    if cluster.role.num_workers > 1:
        share_downloads()
        keep_order()
    if cluster.replicas > 1:
        if library is keras:
            keras_compat.keep_over_clear_session(lambda: None)
            fit_calls.save_without_collectives()
        set_strategy(cluster.strategy, report.warn)
        remedies.refuse_tensorflow_1()
        note = _NOTE if library is keras else _LEGACY_NOTE
        report.log(note.format(replicas=cluster.replicas))


def _library() -> ModuleType:
    """Return the Keras that ``tf.keras`` is: Keras 3, or tf_keras by TF_USE_LEGACY_KERAS."""
    if os.environ.get(LEGACY_KERAS) not in {"1", "true", "True"}:  # as TensorFlow does
        return keras
    try:
        importlib.import_module("tf_keras")
    except ImportError:
        raise TrainerError(
            f"{LEGACY_KERAS} is set and tf_keras is not installed: add tf-keras to "
            "requirements.txt, or unset the variable to run the script with Keras 3"
        ) from None
    return tf.keras


def _absolute(folders: Folders) -> Folders:
    """Return the folders by absolute paths: the script may change the working directory."""
    paths = (path if is_remote(path) else str(Path(path).absolute()) for path in astuple(folders))
    return Folders(*paths)


def _other_keras(session: Session) -> str:
    """Return the remedy where the script may have called ``fit`` of the other Keras."""
    if type(session) is not Session:
        return f" of tf_keras, and {LEGACY_KERAS} is set: unset it to train with Keras 3"
    if "tf_keras" not in sys.modules:
        return ""
    return f' of Keras 3; for tf_keras set {LEGACY_KERAS}: "1" under env: in distlaunch.yaml'


def _finish(session: Session, folders: Folders, role: Role) -> dict[str, Any]:
    """Write the model that was trained last, and the summary; return its facts on the chief."""
    if session.model is None:
        session.report.warn(f"the script has not called fit(){_other_keras(session)}")
        return {}
    files = session.save_model(folders.model)
    if not role.is_chief:
        return {}
    facts = session.facts
    summary = {
        "tasks": list(role.peers),
        "replicas": facts.get("replicas"),
        "global_batch": facts.get("global_batch"),
        "steps_per_epoch": facts.get("steps_per_epoch"),
        "examples_per_epoch": facts.get("examples"),
        "steps": session.step,
        "epochs": session.epochs,
        "resumed_from": session.resumed_from,
        "timing": session.timing,
        "model": folders.model,
        "model_files": files,
    }
    session.report.log(f"model: {folders.model}")
    return {"model": folders.model, "summary": write_summary(folders.job, summary)}
