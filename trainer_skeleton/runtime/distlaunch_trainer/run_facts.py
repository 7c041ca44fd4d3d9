"""Figures of a run, for events, ``evaluation.json`` and ``summary.json``."""

from __future__ import annotations

import hashlib
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from . import keras_compat
from .cluster.collectives import Cluster
from .cluster.devices import usable_cores
from .input.data_setup import TrainingData
from .training_state import Progress


def run_facts(data: TrainingData, epochs: int, cluster: Cluster) -> dict[str, Any]:
    """Return the figures of a run that are known before it trains."""
    plan = data.training.plan
    return {
        "global_batch": plan.global_batch,
        "steps_per_epoch": data.options.steps_per_epoch,
        "epochs": epochs,
        "examples": plan.examples,
        "validation_examples": data.validation.plan.examples if data.validation else 0,
        "replicas": cluster.replicas,
    }


def run_summary(
    data: TrainingData,
    final: Progress,
    cluster: Cluster,
    tasks: Sequence[str],
    *,
    first_step: int,
) -> dict[str, Any]:
    """Return what ``summary.json`` records of a trained model's run, besides its files.

    `tasks` has parameter servers and their workers too. The run was resumed from `first_step`, or
    it is 0.
    """
    facts = run_facts(data, len(final.history), cluster)
    examples = _examples_per_epoch(data, final)
    return {
        "tasks": list(tasks),
        "replicas": facts["replicas"],
        "global_batch": facts["global_batch"],
        "steps_per_epoch": facts["steps_per_epoch"],
        "examples_per_epoch": examples,
        "validation_examples": facts["validation_examples"],
        "steps": final.step,
        "epochs": final.history,
        "resumed_from": first_step or None,
        "data": {
            "training": data.training.describe(examples),
            "validation": data.validation.describe() if data.validation else None,
        },
    }


def hash_modules() -> str | None:
    """Return a hash of the modules beside the program, as `distlaunch check` computes it, too.

    By it the launcher knows whether ``data.py`` is still the one that these data come from. The
    program itself and ``model.py`` are left out.
    """
    program = getattr(sys.modules["__main__"], "__file__", None)
    if program is None:
        return None
    digest = hashlib.sha256()
    for path in sorted(Path(program).parent.glob("*.py")):
        if path.name not in ("model.py", "task.py") and path.is_file():
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def machine_facts() -> dict[str, Any]:
    """Return what this task may use of its machine: cores, GPUs by name, bytes of memory."""
    details = map(tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU"))
    return {
        "cpus": usable_cores(),
        "gpus": [gpu.get("device_name", "GPU") for gpu in details],
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def gradient_bytes(model: keras.Model) -> int | None:
    """Return the bytes of one replica's gradients as they are exchanged in each step.

    None for a model with trained embeddings, of which only the rows of a batch are exchanged.
    """
    layers = keras_compat.all_layers(model)
    if any(isinstance(layer, keras.layers.Embedding) and layer.trainable for layer in layers):
        return None
    return sum(
        math.prod(variable.shape) * tf.as_dtype(variable.dtype).size
        for variable in model.trainable_variables
    )


def nothing_to_train_message(final: Progress) -> str:
    """Return a warning of a run that leaves the model as it is."""
    reason = "a callback ended the training" if final.stopped else "all epochs are done"
    return (
        f"nothing is left to train, {reason}: the model stays as it is; "
        "--no-resume starts from scratch"
    )


def _examples_per_epoch(data: TrainingData, final: Progress) -> int | None:
    """Return the examples of a pass over the data; None if no epoch was one pass."""
    plan = data.training.plan
    if plan.examples or data.options.steps_per_epoch != plan.steps:
        return plan.examples
    return next((epoch["examples"] for epoch in final.history if epoch["examples"]), None)
