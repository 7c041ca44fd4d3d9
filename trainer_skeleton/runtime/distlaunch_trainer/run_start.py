"""Where a run starts: from scratch, or at the chief's checkpoint."""

from __future__ import annotations

import json
import os
from dataclasses import asdict

import keras

from .checkpoints import Checkpoint, Checkpoints, TrainingState
from .cluster import Cluster, Role
from .evaluation import read_checkpoint
from .job_folders import Folders
from .options import Settings
from .report import Report
from .storage import make_folder


def open_folders(folders: Folders, role: Role, report: Report) -> Checkpoints:
    """Return the checkpoints of a job; the chief makes its folders."""
    if role.is_chief:
        for folder in (folders.job, folders.model, folders.checkpoints):
            make_folder(folder)
    return Checkpoints(folders.checkpoints, report)


def checkpoint_to_read(
    checkpoints: Checkpoints, role: Role, settings: Settings, report: Report
) -> Checkpoint | None:
    """Return the checkpoint to resume from or to evaluate; only the chief reads it."""
    if not role.is_chief:
        return None
    if settings.evaluate:
        return read_checkpoint(settings.evaluate, report)
    # Restarted tasks always resume from their checkpoints.
    is_restart = (os.environ.get("DISTLAUNCH_RESTARTS") or "0") != "0"
    if settings.resume or is_restart:
        return checkpoints.latest()
    checkpoints.clear()
    return None


def agreed_start(cluster: Cluster, state: TrainingState | None) -> TrainingState | None:
    """Return on every task the training state of the chief's checkpoint."""
    start = json.loads(cluster.broadcast_text(json.dumps(asdict(state) if state else None)))
    return TrainingState(**start) if start else None


def set_precision(precision: str | None) -> None:
    """Set the precision of all layers, and of data of no type of their own."""
    keras.config.set_floatx("float64" if precision == "float64" else "float32")
    keras.config.set_dtype_policy(precision)
