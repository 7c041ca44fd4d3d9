"""What a task writes for TensorBoard, which need not be installed.

The plugins' formats are those of TensorBoard's own `summary` modules, such as
tensorboard/plugins/scalar/metadata.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from distlaunch_trainer.task.storage import join

if TYPE_CHECKING:  # servers, which report too, do not need Keras
    import keras


class Board:
    """Event files in the folders of parts, such as ``train``, of a log folder."""

    def __init__(self, folder: str, *, writes: bool) -> None:
        self._folder = folder
        self._writes = writes
        self._writers: dict[str, tf.summary.SummaryWriter] = {}

    def scalar(self, part: str, name: str, value: float, step: int) -> None:
        """Write a number."""
        self._write(part, name, value, step, "scalars")

    def model(self, part: str, model: keras.Model) -> None:
        """Write the layers of a model for the Graphs page; nothing if Keras cannot serialize it."""
        if not self._writes:
            return
        try:
            text = model.to_json()
        except Exception:  # noqa: BLE001 - get_config() is the user's
            return
        self._write(part, "keras", text, 0, "graph_keras_model")

    def graph(self, part: str, graph: tf.Graph) -> None:
        """Write a graph with its functions for the Graphs page."""
        if self._writes:
            with self._writer(part).as_default(), tf.summary.record_if(True):
                tf.summary.graph(graph)

    def flush(self) -> None:
        """Write what is buffered."""
        for writer in self._writers.values():
            writer.flush()

    def _write(self, part: str, name: str, value: Any, step: int, plugin: str) -> None:
        if not self._writes:
            return
        metadata = tf.compat.v1.Summary.Value().metadata
        metadata.plugin_data.plugin_name = plugin
        # Keras's callback with an update_freq has TensorFlow drop summaries between its steps.
        with self._writer(part).as_default(), tf.summary.record_if(True):
            tf.summary.write(name, value, step=step, metadata=metadata)

    def _writer(self, part: str) -> tf.summary.SummaryWriter:
        if part not in self._writers:
            self._writers[part] = tf.summary.create_file_writer(join(self._folder, part))
        return self._writers[part]
