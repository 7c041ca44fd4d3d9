"""A user's function of one item, whose results are kept if a cache is requested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from distlaunch_trainer.task.explain import user_code

from .example_cache import IN_MEMORY, ExampleCache, check_memory, check_not_random, example_bytes
from .example_source import InputOptions


class ExampleParser:
    """From an item, such as a record or a number, to an example."""

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
        check_not_random(concrete)
        self._spec = tf.nest.map_structure(tf.type_spec_from_value, concrete.structured_outputs)
        if options.cache == IN_MEMORY and (size := example_bytes(self._spec)):
            check_memory(size * -(-examples // tasks))
        self.cache = ExampleCache(examples, options.cache)

    def __call__(self, item: Any, number: tf.Tensor | None = None) -> Any:
        """Return the example of an item; a cache needs its number (scalar, int64)."""
        if self.cache is None:
            return self.function(item)
        return self.cache.get_or_parse(number, lambda: self.function(item), self._spec)
