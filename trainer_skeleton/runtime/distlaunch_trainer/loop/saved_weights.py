"""The saved weights that ``--evaluate`` names."""

from __future__ import annotations

import tempfile
from pathlib import Path

import keras
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.errors import ModelError, StorageError, summarize
from distlaunch_trainer.model.model_state import ModelState
from distlaunch_trainer.model.other_variables import OtherVariables, saved_others
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.saving.checkpoints import Checkpoint, Checkpoints
from distlaunch_trainer.task.storage import join, names_in, read_whole

_WEIGHT_FILES = ("model.keras", "model.weights.h5")


def read_checkpoint(path: str, report: Report) -> Checkpoint | None:
    """Return the checkpoint at ``path``, None if that is no checkpoint."""
    folder, _, name = path.rstrip("/").rpartition("/")
    if name.endswith((".keras", ".h5")):  # a file, which has no manifest in it
        return None
    return Checkpoints(folder or ".", report).read(name)


def restore_weights(
    model: keras.Model, path: str, checkpoint: Checkpoint | None, cluster: Cluster
) -> None:
    """Set the weights of a built model to saved ones on all tasks; only the chief reads them.

    They are those of a ``.keras`` or ``.weights.h5`` file, or a folder with one, unless there is a
    checkpoint at ``path``, which is needed on the chief only.
    """
    others = OtherVariables(model, cluster, model.variables)
    if cluster.role.is_chief:
        if checkpoint is None:
            _load_weights(model, path)
        else:
            state = ModelState(model, cluster.strategy, weights_only=True)
            state.check_same(checkpoint.model)
            state.assign([checkpoint.values[name] for name in state.variables])
            others.assign(saved_others(checkpoint.values))
    if own := others.values():
        others.assign(dict(zip(own, cluster.broadcast_all(list(own.values())), strict=True)))
    weights = [tf.convert_to_tensor(variable.value).numpy() for variable in model.variables]
    for variable, value in zip(model.variables, cluster.broadcast_all(weights), strict=True):
        variable.assign(value)


def _load_weights(model: keras.Model, path: str) -> None:
    if not path.endswith((".keras", ".weights.h5")):
        present = [name for name in _WEIGHT_FILES if name in names_in(path)]
        if not present:
            raise StorageError(
                f"--evaluate {path}: found no checkpoint, .keras or .weights.h5 file there"
            )
        path = join(path, present[0])
    data = read_whole(path)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, path.rpartition("/")[2])
        copy.write_bytes(data)
        try:
            model.load_weights(copy)
        except Exception as error:
            raise ModelError(
                f"{path} does not fit the model of trainer/model.py: {summarize(error)}"
            ) from error
