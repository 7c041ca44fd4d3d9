"""How to fix what ends a script that runs by itself, but not on a cluster or this TensorFlow."""

from __future__ import annotations

import re
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import tensorflow as tf

from distlaunch_trainer.errors import ModelError

_NO_ATTRIBUTE = re.compile(
    r"module '(?P<module>tensorflow[\w.]*)' has no attribute '(?P<name>\w+)'"
)
_NO_MODULE = re.compile(r"No module named 'tensorflow\.(contrib|estimator)\b")
_OUTSIDE_OF_RUN = re.compile(r"not available outside the replica context")
_RELATIVE_IMPORT = "attempted relative import with no known parent package"
_IN_CONDITION = re.compile(r"`merge_call` called while defining a new graph")

_CUSTOM_LOOP = (
    "a loop of your own trains on several replicas with strategy = tf.distribute.get_strategy(), "
    "batches of strategy.experimental_distribute_dataset(data), strategy.run(step, batch), and "
    "tf.nn.compute_average_loss(losses, global_batch_size=n) in the step, as gradients are summed; "
    "or train with fit(), or with the trainer ('distlaunch init --starter custom-loop')"
)
_CONDITION = (
    "several replicas cannot update weights in tf.cond(), an if of a tensor, or another "
    "tf.function: to accumulate gradients, make the optimizer with gradient_accumulation_steps and "
    "apply it in each step"
)
_OLD = (
    f"this is a program of TensorFlow 1 or its Estimators, and TensorFlow {tf.__version__} is "
    "installed: port the training to a Keras model and fit()"
)


def remedy(error: BaseException) -> str:
    """Return how to fix an error of the script, "" if that is not known."""
    text = str(error)
    if _OUTSIDE_OF_RUN.search(text):
        return _CUSTOM_LOOP
    if _IN_CONDITION.search(text):
        return _CONDITION
    if _RELATIVE_IMPORT in text:
        module = ".".join(Path(sys.argv[0]).with_suffix("").parts)
        return (
            f"a script is in no package: write script_module: {module} in place of script in "
            f"distlaunch.yaml, or -m {module} on the command line"
        )
    if _NO_MODULE.search(text) or _is_of_tensorflow_1(text):
        return _OLD
    return ""


def refuse_tensorflow_1() -> None:
    """Have the script end where it turns to the graphs and sessions of TensorFlow 1."""
    module = import_module("tensorflow.compat.v1")  # not always what tf.compat.v1 was before
    for name in ("disable_v2_behavior", "disable_eager_execution"):
        setattr(module, name, partial(_refuse, name))


def _refuse(name: str) -> NoReturn:
    raise ModelError(f"tf.compat.v1.{name}(): {_OLD}")


def _is_of_tensorflow_1(text: str) -> bool:
    """Return whether TensorFlow 1 has the attribute that a module of TensorFlow 2 has not."""
    match = _NO_ATTRIBUTE.search(text)
    if match is None:
        return False
    name, attribute = match.groups()
    if attribute in {"contrib", "estimator"}:
        return True
    module = tf.compat.v1
    for part in name.split(".")[1:]:
        module = getattr(module, part, module)
    return hasattr(module, attribute)
