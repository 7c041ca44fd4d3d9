"""The scalars that a task writes for TensorBoard, which need not be installed."""

from __future__ import annotations

import tensorflow as tf

from distlaunch_trainer.task.storage import join


class Board:
    """Event files in the folders of parts, such as ``train``, of a log folder."""

    def __init__(self, folder: str, *, writes: bool) -> None:
        self._folder = folder
        self._writes = writes
        self._writers: dict[str, tf.summary.SummaryWriter] = {}

    def scalar(self, part: str, name: str, value: float, step: int) -> None:
        """Write a number."""
        if not self._writes:
            return
        # The format is that of tensorboard/plugins/scalar/metadata.py.
        metadata = tf.compat.v1.Summary.Value().metadata
        metadata.plugin_data.plugin_name = "scalars"
        # Keras's callback with an update_freq has TensorFlow drop summaries between its steps.
        with self._writer(part).as_default(), tf.summary.record_if(True):
            tf.summary.write(name, value, step=step, metadata=metadata)

    def flush(self) -> None:
        """Write what is buffered."""
        for writer in self._writers.values():
            writer.flush()

    def _writer(self, part: str) -> tf.summary.SummaryWriter:
        if part not in self._writers:
            self._writers[part] = tf.summary.create_file_writer(join(self._folder, part))
        return self._writers[part]
