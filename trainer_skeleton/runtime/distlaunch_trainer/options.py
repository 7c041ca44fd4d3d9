"""The options of the trainer's command line.

The launcher reads this file alone to check a job's arguments: it imports neither TensorFlow nor
other modules of the package.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn

CHIEF_FIRST_SECONDS = 5.0
"""Before other tasks report an error: the chief's end stops them before they report the same."""

STRATEGIES = ("multi-worker", "mirrored", "one-device", "parameter-server", "tpu")

SCRIPT_OPTIONS = (
    *("job_dir", "resume", "allow_cpu", "gpu_memory_growth", "checkpoint_every", "step_timeout"),
    *("sync_batch_norm", "same_random"),
)
"""The options that a script with ``fit`` has; those of the training loop are its own."""


class _OptionParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print the error in one line."""
        if not _is_chief():
            time.sleep(CHIEF_FIRST_SECONDS)
        line = " ".join(message.split())
        self.exit(2, f"trainer: error: {line} (--help lists the options)\n")


def _is_chief() -> bool:
    """Return whether this task is the chief, or in no cluster that TF_CONFIG describes."""
    try:
        return json.loads(os.environ["TF_CONFIG"])["task"]["type"] in ("chief", "master")
    except (KeyError, TypeError, ValueError):
        return True


def at_least(least: int, most: int = 2**31 - 1) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be {least} or more, got {value}")
        if value > most:
            raise argparse.ArgumentTypeError(f"must be {most} or less, got {value}")
        return value

    number.__name__ = "whole number"
    return number


def _number(what: str, fits: Callable[[float], bool]) -> Callable[[str], float]:
    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not fits(value):
            raise argparse.ArgumentTypeError(f"must be a number {what}, got {text}")
        return value

    return number


_positive = _number("above 0", lambda value: 0 < value < math.inf)
_not_negative = _number("of 0 or more", lambda value: 0 <= value < math.inf)


def _option(text: str, default: Any = None, **arguments: Any) -> Any:
    return field(default=default, metadata={"help": text, **arguments})


def _flag(text: str) -> Any:
    return _option(text, False, action="store_true")


@dataclass(frozen=True)
class Settings:
    """The values of the options; see ``python -m trainer.task --help``."""

    epochs: int = _option("epochs in all (%(default)s)", 5, type=at_least(1))
    batch_size: int | None = _option("rows of a step per replica (32)", type=at_least(1))
    global_batch_size: int | None = _option("rows of a step over all replicas", type=at_least(1))
    job_dir: str | None = _option(
        "folder or gs:// URL to write to (from AIP_MODEL_DIR, else ./job)"
    )
    strategy: str | None = _option(
        "tf.distribute strategy (chosen from the cluster and the devices)",
        choices=STRATEGIES,
    )
    cross_device_ops: str | None = _option(
        "how the mirrored strategy sums over the devices (TensorFlow's choice)",
        choices=("nccl", "hierarchical-copy", "reduction-to-one"),
    )
    tpu: str = _option(
        "with --strategy tpu: its name, or local for the TPU of this machine (%(default)s)",
        "local",
        metavar="NAME",
    )
    learning_rate: float | None = _option("replaces the optimizer's own", type=_positive)
    scale_learning_rate: bool = _flag("multiply the learning rate by the number of replicas")
    warmup_epochs: float | None = _option(
        "epochs in which the learning rate rises from 0, e.g. 0.5 (none)",
        type=_not_negative,
        metavar="EPOCHS",
    )
    steps_per_epoch: int | None = _option(
        "steps after which an epoch is reported (as many as see every example once)",
        type=at_least(1),
    )
    seed: int | None = _option(
        "of the weights, the order of the data and the random numbers of layers (0)",
        type=at_least(0, 2**32 - 1),
    )
    same_random: bool = _flag(
        "have layers draw the same random numbers for a row on any number of replicas"
    )
    shards: int | None = _option(
        "logical shards of the data: clusters whose size divides it train alike (240)",
        type=at_least(1, 10_000),
    )
    shard_policy: str | None = _option(
        "whether workers share the rows of a tf.data.Dataset of your own (data), or each "
        "has one of its own (off)",
        choices=("data", "off"),
    )
    shuffle: int | None = _option(
        "examples to shuffle among where not all fit into memory; 0 keeps their order (10000)",
        type=at_least(0),
        metavar="EXAMPLES",
    )
    cache: str | None = _option(
        "where parsed examples are kept for the next epochs: memory, or a local disk (none)",
        metavar="memory|FOLDER",
    )
    precision: str | None = _option(
        "numbers to compute with (float32)",
        choices=("float32", "float64", "mixed_bfloat16", "mixed_float16"),
    )
    tf32: bool = _option(
        "multiply float32 in TF32 on GPUs that have it, as TensorFlow does (yes)",
        True,
        action=argparse.BooleanOptionalAction,
    )
    sync_batch_norm: bool = _flag("have every batch normalisation see the rows of all replicas")
    checkpoint_every: int = _option(
        "steps between checkpoints, besides those at the end of each epoch (none)",
        0,
        type=at_least(0),
        metavar="STEPS",
    )
    resume: bool = _option(
        "resume from the newest checkpoint of the job folder, or remove its checkpoints",
        True,
        action=argparse.BooleanOptionalAction,
    )
    evaluate: str | None = _option(
        "evaluate a checkpoint, or a saved model (.keras, .weights.h5), instead of training",
        metavar="PATH",
    )
    evaluate_on: str | None = _option(
        "data that --evaluate and an evaluator evaluate (validation, or training if none)",
        choices=("validation", "test", "training"),
    )
    check_numerics: bool = _flag(
        "report the operation, step and line that computes a NaN or an infinity; slow"
    )
    step_timeout: int | None = _option(
        "time without a finished step after which a task ends; 0 for none (600, 1800 for a "
        "task alone)",
        type=at_least(0),
        metavar="SECONDS",
    )
    allow_cpu: bool = _flag("train even if TensorFlow sees fewer GPUs than the machine has")
    gpu_memory_growth: bool = _flag(
        "allocate GPU memory when it is needed instead of all of it at the start"
    )
    debug: bool = _flag("show tracebacks")

    @classmethod
    def of(cls, options: argparse.Namespace) -> Settings:
        """Take the options of these names from parsed arguments, which may have others too."""
        values = vars(options)
        return cls(**{each.name: values[each.name] for each in fields(cls) if each.name in values})


def parser(
    prog: str = "python -m trainer.task",
    description: str = "Train the model of trainer/model.py on the data of trainer/data.py.",
) -> argparse.ArgumentParser:
    """Return the parser of the trainer's options; a program may add its own."""
    options = _OptionParser(prog=prog, description=description, allow_abbrev=False)
    batch = options.add_mutually_exclusive_group()
    for each in fields(Settings):
        add_option(batch if each.name.endswith("batch_size") else options, each.name)
    return options


def add_option(options: argparse._ActionsContainer, name: str, **arguments: Any) -> None:
    """Add an option to a parser, by its name in `Settings`."""
    each = Settings.__dataclass_fields__[name]
    arguments = {"default": each.default, **each.metadata, **arguments}
    if name == "debug":
        arguments["default"] = bool(os.environ.get("DISTLAUNCH_DEBUG"))
    options.add_argument(f"--{name.replace('_', '-')}", **arguments)
