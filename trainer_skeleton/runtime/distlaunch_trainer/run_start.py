"""How a task joins a run: the cluster, the job folder, and where the run starts or resumes."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace

import keras
import tensorflow as tf

from . import keras_compat
from .cluster import devices
from .cluster.collectives import Cluster
from .cluster.role import Role, role_from
from .cluster.strategy import connect, describe
from .errors import ClusterError
from .input.downloads import share_downloads
from .input.run_options import resolve_option
from .loop.saved_weights import read_checkpoint
from .options import Settings
from .parameter_server.connection import Servers, connect_to_servers, coordinates
from .report.report import Report
from .saving.checkpoints import Checkpoint, Checkpoints, agreed_state
from .step import random_draws
from .task import messages, stop_signal
from .task.job_folders import Folders, folders_from
from .task.stop_signal import StopSignal
from .task.storage import make_folder
from .training_state import TrainingState


@dataclass(frozen=True)
class JoinedRun:
    """A run that this task has joined."""

    settings: Settings  # with the precision of the run that is resumed
    is_evaluator: bool  # evaluates checkpoints, and is no member of the cluster
    cluster: Cluster  # the tasks that train in step; the chief alone with parameter servers
    servers: Servers | None
    folders: Folders
    report: Report
    stop: StopSignal
    checkpoints: Checkpoints
    saved: Checkpoint | None  # to resume from or to evaluate, on the chief
    start: TrainingState | None  # where an earlier run stopped, if this one resumes it


def join_run(options: argparse.Namespace) -> JoinedRun:
    """Form the cluster of ``TF_CONFIG``, and read from the job folder where an earlier run stopped.

    The errors are those of `Run`.
    """
    settings, role = Settings.of(options), role_from(os.environ)
    is_evaluator = role.type == "evaluator"
    if is_evaluator:
        role, settings = as_evaluator(role, settings)
    folders = folders_from(settings.job_dir, os.environ)
    report = start_task(role, folders, settings)
    cluster, servers = _connect(role, settings, report)
    random_draws.install(same=settings.same_random)
    # After the cluster is formed, in which TensorFlow replaces the handler of SIGTERM.
    stop = StopSignal()
    checkpoints, saved = Checkpoints(folders.checkpoints, report), None
    if is_evaluator:
        latest = checkpoints.latest() if resumes(settings) else None
        start = latest and latest.state
    else:
        if cluster.role.is_chief:
            for folder in (folders.job, folders.model, folders.checkpoints):
                make_folder(folder)
        saved = _checkpoint_to_read(checkpoints, cluster.role, settings, report)
        start = agreed_state(cluster, saved and saved.state)
    precision = resolve_option(
        "--precision", settings.precision, start and start.options.precision, "float32"
    )
    set_precision(precision)
    keras_compat.keep_over_clear_session(lambda: set_precision(precision))
    if not settings.tf32:
        # TensorFlow's default is on, for speed. Off, clusters differ by float32's rounding only.
        tf.config.experimental.enable_tensor_float_32_execution(False)
    if settings.check_numerics:
        tf.debugging.enable_check_numerics(stack_height_limit=1)  # explain names the line
    if settings.evaluate or is_evaluator:
        start = None  # only its precision counts
    return JoinedRun(
        replace(settings, precision=precision),
        is_evaluator,
        cluster,
        servers,
        folders,
        report,
        stop,
        checkpoints,
        saved,
        start,
    )


def start_task(role: Role, folders: Folders, settings: Settings) -> Report:
    """Check Keras and the devices of this task before the tasks meet; return where it reports."""
    keras_compat.check_version()
    report = Report(role, folders.logs)
    stop_signal.end_if_pending()
    devices.prepare(
        role.name,
        os.environ,
        allow_cpu=settings.allow_cpu,
        memory_growth=settings.gpu_memory_growth,
    )
    return report


def _connect(role: Role, settings: Settings, report: Report) -> tuple[Cluster, Servers | None]:
    """Form the cluster; with parameter servers the chief is one of its own."""
    if not coordinates(role, settings):
        cluster = Cluster(role, connect(role, settings))
        report.log(describe(cluster.strategy, role))
        if role.num_workers > 1:
            share_downloads()
        return cluster, None
    servers = None if settings.evaluate else connect_to_servers(role, settings)
    if servers is not None:  # with --evaluate the chief evaluates alone
        report.log(servers.describe())
    return Cluster(Role(role.name), tf.distribute.get_strategy()), servers


def _checkpoint_to_read(
    checkpoints: Checkpoints, role: Role, settings: Settings, report: Report
) -> Checkpoint | None:
    """Return the checkpoint to resume from or to evaluate; only the chief reads it."""
    if not role.is_chief:
        return None
    if settings.evaluate:
        return read_checkpoint(settings.evaluate, report)
    if resumes(settings):
        return checkpoints.latest()
    checkpoints.clear()
    return None


def resumes(settings: Settings) -> bool:
    """Return whether checkpoints of the job folder count: always for restarted tasks."""
    return settings.resume or (os.environ.get("DISTLAUNCH_RESTARTS") or "0") != "0"


def set_precision(precision: str | None) -> None:
    """Set the precision of all layers, and of data of no type of their own."""
    keras.config.set_floatx("float64" if precision == "float64" else "float32")
    keras.config.set_dtype_policy(precision)


def as_evaluator(role: Role, settings: Settings) -> tuple[Role, Settings]:
    """Return the role and the options of an evaluator: a cluster of one task.

    With ``--evaluate`` the training tasks evaluate, and this one exits with 0.
    """
    if role.name != "evaluator:0":
        raise ClusterError(f"{role.name}: a job has one evaluator: set count: 1")
    if settings.evaluate:
        messages.info("--evaluate runs on the training tasks: nothing to do here")
        raise SystemExit(0)
    alone = replace(role, peers=(role.name,), addresses=(), parameter_servers=())
    return alone, replace(settings, strategy=None, cross_device_ops=None)
