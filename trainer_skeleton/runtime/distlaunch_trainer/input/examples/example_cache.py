"""Parsed examples, which a cache keeps for the next passes: in memory, or in a local folder.

They are kept by their number, so it does not matter in which order a pass takes them, where a run
is resumed, or how many replicas a task has.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from distlaunch_trainer.errors import DataError
from distlaunch_trainer.keras_compat.keras_random import is_random, operations_in
from distlaunch_trainer.task.explain import user_code
from distlaunch_trainer.task.storage import is_remote

from .example_source import InputOptions

IN_MEMORY = "memory"
# The rest is for TensorFlow, the model and the system.
_USABLE_MEMORY = 0.8


class ExampleParser:
    """Makes an item, such as a record or a number, an example; a cache keeps it if requested."""

    def __init__(
        self,
        function: Callable[[Any], Any],  # the user's, from an item to an example
        item: tf.TensorSpec,
        *,
        examples: int,  # of all tasks
        tasks: int,
        options: InputOptions,
    ) -> None:
        # By itself, as AutoGraph looks at nothing else of a pipeline.
        self.function = tf.function(function)
        self.cache: ExampleCache | None = None
        if options.cache is None or not examples:
            return
        with user_code("the data cannot be read"):
            concrete = self.function.get_concrete_function(item)
        _check_not_random(concrete.graph)
        self._spec = tf.nest.map_structure(tf.type_spec_from_value, concrete.structured_outputs)
        if options.cache == IN_MEMORY and (size := _example_bytes(self._spec)):
            _check_memory(size * -(-examples // tasks))
        self.cache = ExampleCache(examples, options.cache)

    def __call__(self, item: Any, number: tf.Tensor | None = None) -> Any:
        """Return the example of an item; a cache needs its number (scalar, int64)."""
        if self.cache is None:
            return self.function(item)
        return self.cache.get_or_parse(number, lambda: self.function(item), self._spec)


class ExampleCache:
    """Strings by the number of an example, which are added as they are read first."""

    def __init__(
        self,
        examples: int,  # of all tasks
        place: str,  # ``memory``, or a local folder
    ) -> None:
        self._folder = None if place == IN_MEMORY else _new_folder(place)
        with tf.device("CPU"):
            self._is_kept = tf.Variable(tf.zeros([examples], tf.bool), trainable=False)
            self._values = tf.lookup.experimental.MutableHashTable(tf.int64, tf.string, "")

    def has(self, start: Any, stop: Any) -> tf.Tensor:
        """Return whether all of the examples ``start ... stop-1`` are kept (scalar, bool)."""
        return tf.reduce_all(self._is_kept[start:stop])

    def get(self, numbers: tf.Tensor) -> tf.Tensor:
        """Return the strings of examples (vectors)."""
        values = self._values.lookup(numbers)
        if self._folder is not None:
            values = tf.map_fn(tf.io.read_file, values)
        return tf.ensure_shape(values, numbers.shape)

    def put(self, numbers: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        """Keep the strings of examples (vectors); return these."""
        kept = values if self._folder is None else self._written(numbers, values)
        with tf.control_dependencies([self._values.insert(numbers, kept)]):
            indices = numbers[:, tf.newaxis]
            marked = self._is_kept.scatter_nd_update(indices, tf.ones_like(numbers, tf.bool))
        with tf.control_dependencies([marked]):
            return tf.identity(values)

    def get_or_parse(self, number: tf.Tensor, parse: Callable[[], Any], spec: Any) -> Any:
        """Return an example, from the cache if it is kept there."""
        specs = tf.nest.flatten(spec, expand_composites=True)

        def kept() -> list[tf.Tensor]:
            parts = tf.io.parse_tensor(self.get(number[tf.newaxis])[0], tf.string)
            return [
                tf.ensure_shape(tf.io.parse_tensor(parts[n], each.dtype), each.shape)
                for n, each in enumerate(specs)
            ]

        def parsed() -> list[tf.Tensor]:
            tensors = tf.nest.flatten(parse(), expand_composites=True)
            parts = tf.stack([tf.io.serialize_tensor(tensor) for tensor in tensors])
            added = self.put(number[tf.newaxis], tf.io.serialize_tensor(parts)[tf.newaxis])
            with tf.control_dependencies([added]):
                return [tf.identity(tensor) for tensor in tensors]

        tensors = tf.cond(self._is_kept[number], kept, parsed)
        return tf.nest.pack_sequence_as(spec, tensors, expand_composites=True)

    def _written(self, numbers: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        """Write strings to files of their own, as two passes may do so at once."""

        def write(number: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
            moment = tf.cast(tf.timestamp() * 1e6, tf.int64)
            names = [f"{self._folder}/", tf.as_string(number), "-", tf.as_string(moment)]
            path = tf.strings.join(names)
            with tf.control_dependencies([tf.io.write_file(path, value)]):
                return tf.identity(path)

        return tf.map_fn(
            lambda each: write(*each), (numbers, values), fn_output_signature=tf.string
        )


def _new_folder(place: str) -> str:
    """Make a folder of this process in a local one; it is removed as the process ends."""
    if is_remote(place):
        raise DataError(f"--cache {place}: takes `memory` or a folder of a local disk")
    try:
        Path(place).mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(prefix="examples-", dir=place)
    except OSError as error:
        raise DataError(f"--cache {place} cannot be written: {error.strerror}") from error
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _example_bytes(spec: Any) -> int | None:
    """Return the bytes of an example of this type; None where its shape is not known."""
    parts = tf.nest.flatten(spec, expand_composites=True)
    if any(part.dtype == tf.string or not part.shape.is_fully_defined() for part in parts):
        return None
    return sum(part.shape.num_elements() * part.dtype.size for part in parts)


def _check_memory(needed: int) -> None:
    """Refuse a cache that is larger than the machine's memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory * _USABLE_MEMORY:
        raise DataError(
            f"--cache memory takes {needed / 1e9:,.1f} GB in each task, and the machine has "
            f"{memory / 1e9:,.1f} GB: use --cache FOLDER of a local disk, or no cache"
        )


def _check_not_random(graph: tf.Graph) -> None:
    """Refuse to cache what a function drew by chance."""
    for node in operations_in(graph):
        if is_random(node.op):
            raise DataError(
                f"--cache would repeat the random numbers of trainer/data.py ({node.name}) in "
                "every epoch: augment in the model, e.g. with keras.layers.RandomFlip, or leave "
                "--cache out"
            )
