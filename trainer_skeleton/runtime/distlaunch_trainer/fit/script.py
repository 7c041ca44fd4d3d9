"""``fit`` of Keras on all tasks of a cluster: of a script, or of a program that runs already."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import astuple, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.cluster.role import Role, role_from
from distlaunch_trainer.cluster.strategy import connect, describe
from distlaunch_trainer.errors import TrainerError
from distlaunch_trainer.input.downloads import share_downloads
from distlaunch_trainer.input.user_data.repeated_shuffles import remember_readings
from distlaunch_trainer.input.user_data.user_dataset import cache_by_task, keep_order
from distlaunch_trainer.keras_compat import fit_calls
from distlaunch_trainer.options import SCRIPT_OPTIONS, Settings
from distlaunch_trainer.report.report import write_summary
from distlaunch_trainer.run_start import resumes, start_task
from distlaunch_trainer.step import random_draws
from distlaunch_trainer.task import explain
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
    "and clipping are as TensorFlow does them"
)

_sessions: list[Session] = []  # of this process, one at most


def run_program(program: Program, settings: Settings) -> None:
    """Run a program whose ``fit`` trains on all tasks of the cluster of ``TF_CONFIG``.

    Every task calls this, at most once in a process, before TensorFlow has computed anything.
    TrainerError is raised if the script fails; see also `distributed_fit`.
    """
    # What the program sets after the strategy is made would be too late.
    if "set_memory_growth(" in program.source():
        settings = replace(settings, gpu_memory_growth=True)
    with _cluster_session(settings, _library()), explain.script_errors(remedies.remedy):
        program.run()


@contextlib.contextmanager
def distributed_fit(**options: Any) -> Iterator[None]:
    """Have ``fit`` of Keras in here train on all tasks of the cluster of ``TF_CONFIG``.

    For programs that another launcher has started, such as the function of a Ray Train worker.
    Every task enters this, at most once in a process, before TensorFlow has computed anything, and
    creates its models in here. At the end the chief writes the model that was trained last.

    Parameters
    ----------
    job_dir : str
        Folder or ``gs://`` URL to write to; default: that of ``AIP_MODEL_DIR``, or ``./job``.
    resume : bool
        Whether to resume from the checkpoints of the job folder, or to remove them; default: True.
    allow_cpu : bool
        Whether to train if TensorFlow sees fewer GPUs than the machine has.
    gpu_memory_growth : bool
        Whether to allocate GPU memory when it is needed instead of all of it at the start.
    checkpoint_every : int
        Steps between checkpoints; default: 0, for one at the end of each epoch only.
    step_timeout : int
        Seconds without a finished step after which a task ends, 0 for none; default: 600, and 0 for
        a task alone.
    sync_batch_norm : bool
        Whether all batch normalizations take their statistics from all replicas.
    same_random : bool
        Whether layers draw the same random numbers for a row on any number of replicas.

    Raises
    ------
    TrainingStopped
        If a task received SIGTERM during ``fit``; the chief has saved.
    TrainerError
        If the cluster cannot be formed, or a checkpoint cannot be read or written.
    """
    # Ray Train sets it, and then tf.keras is tf_keras where that is first used after this.
    os.environ.pop(LEGACY_KERAS, None)
    with _cluster_session(_settings(options), keras):
        yield


def _settings(options: Mapping[str, Any]) -> Settings:
    """Return the settings of a call's options; those of the training loop are no options here."""
    if unknown := sorted(options.keys() - {*SCRIPT_OPTIONS}):
        raise TypeError(
            f"no option {', '.join(unknown)}: distributed_fit() takes {', '.join(SCRIPT_OPTIONS)}"
        )
    return Settings(**options)


@contextlib.contextmanager
def _cluster_session(settings: Settings, library: ModuleType) -> Iterator[None]:
    """Form the cluster, have ``fit`` in here train on it, and write what it has trained."""
    if _sessions:
        raise TrainerError(
            "distributed_fit() changes Keras for the rest of a process, and this one has called "
            "it: call it in a new process"
        )
    role = role_from(os.environ)
    folders = _absolute(folders_from(settings.job_dir, os.environ))
    report = start_task(role, folders, settings)
    cluster = Cluster(role, connect(role))
    report.log(describe(cluster.strategy, role))
    ignore_late_settings(report.warn)
    with StopSignal() as stop:
        if role.is_chief:
            if not resumes(settings):
                remove(folders.checkpoints)
            make_folder(folders.job)
            make_folder(folders.checkpoints)
        session = _session_type(library)(cluster, report, stop, folders.checkpoints, settings)
        _sessions.append(session)
        _install(session, library, same_random=settings.same_random)
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


def _session_type(library: ModuleType) -> type[Session]:
    """Return the session of a script that uses Keras 3 or tf_keras."""
    if library is keras:
        return Session
    from .legacy import LegacySession  # needs tf_keras

    return LegacySession


def _install(session: Session, library: ModuleType, *, same_random: bool) -> None:
    """Change Keras, TensorFlow and Python's random numbers for the rest of this process."""
    cluster, report = session.cluster, session.report
    random_draws.install(same=same_random)
    # All tasks must draw the same numbers, e.g. to shuffle the data alike.
    keras.utils.set_random_seed(0)
    session.install()
    remember_readings()
    if cluster.role.num_workers > 1:
        share_downloads()
        keep_order()
        if not cluster.role.is_chief:
            cache_by_task(cluster.role.name)
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


def _finish(session: Session, folders: Folders, role: Role) -> dict[str, Any]:
    """Write the model that was trained last, and the summary; return its facts on the chief."""
    if session.model is None:
        library = "Keras 3" if type(session) is Session else "tf_keras"
        session.report.warn(
            f"the script has not called fit() of {library}, so the job folder gets no model and no "
            f'summary; {LEGACY_KERAS} is to be "1" for tf_keras, and unset for Keras 3'
        )
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
