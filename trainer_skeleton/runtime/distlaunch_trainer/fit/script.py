"""A script as the program of one task of a cluster."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from dataclasses import astuple
from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer import (
    devices,
    explain,
    keras_compat,
    keras_random,
    same_random,
    stop_signal,
)
from distlaunch_trainer.cluster import Cluster, Role, role_from
from distlaunch_trainer.downloads import share_downloads
from distlaunch_trainer.errors import TrainerError
from distlaunch_trainer.job_folders import Folders, folders_from
from distlaunch_trainer.report import Report, write_summary
from distlaunch_trainer.stop_signal import StopSignal
from distlaunch_trainer.storage import is_remote, make_folder, remove
from distlaunch_trainer.strategy import connect, describe
from distlaunch_trainer.user_dataset import keep_order

from . import remedies
from .chief_files import redirected_writes
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


def run_script(options: argparse.Namespace) -> None:
    """Run a script as one task of the cluster of ``TF_CONFIG``.

    Parameters
    ----------
    options
        The arguments, parsed by :func:`distlaunch_trainer.fit.__main__.parser`.

    Raises
    ------
    TrainingStopped
        If a task received SIGTERM during ``fit``; the chief has saved.
    TrainerError
        If the cluster cannot be formed, or a checkpoint cannot be read or written.
    SystemExit
        If the script calls ``sys.exit`` with another code than 0.
    """
    program = Program.of(options)
    library = _library()
    role = role_from(os.environ)
    folders = _absolute(folders_from(options.job_dir, os.environ))
    report = Report(role, folders.logs)
    stop_signal.end_if_pending()
    devices.prepare(
        role.name,
        os.environ,
        allow_cpu=options.allow_cpu,
        # What the script sets after the strategy is made would be too late.
        memory_growth=options.gpu_memory_growth or "set_memory_growth(" in program.source(),
    )
    cluster = Cluster(role, connect(role))
    report.log(describe(cluster.strategy, role))
    ignore_late_settings(report.warn)
    stop = StopSignal()
    is_restart = (os.environ.get("DISTLAUNCH_RESTARTS") or "0") != "0"
    if role.is_chief:
        if not options.resume and not is_restart:
            remove(folders.checkpoints)
        make_folder(folders.job)
        make_folder(folders.checkpoints)
    same_random.install() if options.same_random else keras_random.install()
    session = _session(
        library, cluster, report, stop, checkpoints_dir=folders.checkpoints, options=options
    )
    # All tasks must draw the same numbers, e.g. to shuffle the data alike.
    keras.utils.set_random_seed(0)
    session.install()
    if cluster.role.num_workers > 1:
        share_downloads()
        keep_order()
    if cluster.replicas > 1:
        if library is keras:
            keras_compat.keep_over_clear_session(lambda: None)
            keras_compat.save_without_collectives()
        set_strategy(cluster.strategy, report.warn)
        remedies.refuse_tensorflow_1()
        note = _NOTE if library is keras else _LEGACY_NOTE
        report.log(note.format(replicas=cluster.replicas))
    with redirected_writes(library) if not role.is_chief else contextlib.nullcontext():
        with explain.script_errors(remedies.remedy):
            program.run()
        session.rendezvous.meet("the end of the script")
        # In its scope, the chief could not save alone.
        tf.distribute.experimental_set_strategy(None)
        results = _finish(session, folders, role)
    cluster.barrier()
    report.event("end", step=session.step, **results)


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


def _session(
    library: ModuleType,
    cluster: Cluster,
    report: Report,
    stop: StopSignal,
    *,
    checkpoints_dir: str,
    options: argparse.Namespace,
) -> Session:
    """Return the session of a script that uses Keras 3 or tf_keras."""
    if library is keras:
        return Session(
            cluster,
            report,
            stop,
            checkpoints_dir=checkpoints_dir,
            checkpoint_every=options.checkpoint_every,
            step_timeout=options.step_timeout,
            sync_batch_norm=options.sync_batch_norm,
        )
    from .legacy import LegacySession  # needs tf_keras

    return LegacySession(cluster, report, stop, checkpoints_dir=checkpoints_dir)


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
