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
from dataclasses import dataclass, fields
from typing import NoReturn

_CHIEF_FIRST_SECONDS = 5.0

STRATEGIES = ("multi-worker", "mirrored", "one-device", "parameter-server", "tpu")
_REFUSED_STRATEGIES = {
    "central-storage": "CentralStorageStrategy is experimental in TensorFlow, and Keras 3 does "
    "not support it: use mirrored",
    "default": "the default strategy does not distribute: use one-device",
}


@dataclass(frozen=True)
class Settings:
    """The values of the options; see ``python -m trainer.task --help``."""

    job_dir: str | None = None
    epochs: int = 5
    batch_size: int | None = None
    global_batch_size: int | None = None
    learning_rate: float | None = None
    scale_learning_rate: bool = False
    warmup_epochs: float | None = None
    decay: str | None = None
    decay_rate: float | None = None
    decay_epochs: float | None = None
    steps_per_epoch: int | None = None
    seed: int | None = None
    same_random: bool = False
    shards: int | None = None
    shard_policy: str | None = None
    shuffle: int | None = None
    cache: str | None = None
    parallel_reads: int | None = None
    parallel_calls: int | None = None
    prefetch: int | None = None
    precision: str | None = None
    tf32: bool = True
    sync_batch_norm: bool = False
    checkpoint_every: int = 0
    strategy: str | None = None
    cross_device_ops: str | None = None
    tpu: str = "local"
    resume: bool = True
    evaluate: str | None = None
    evaluate_on: str | None = None
    export: str | None = None
    export_metric: str = "val_loss"
    export_mode: str | None = None
    check_numerics: bool = False
    step_timeout: int | None = None
    allow_cpu: bool = False
    gpu_memory_growth: bool = False
    histograms: bool = False
    gradient_norm: bool = False
    scalars_every: int = 0
    profile: tuple[int, int] | None = None
    debug: bool = False

    @classmethod
    def of(cls, options: argparse.Namespace) -> Settings:
        """Take the trainer's own options from parsed arguments, which may have others too."""
        return cls(**{each.name: getattr(options, each.name) for each in fields(cls)})


class _OptionParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print the error in one line."""
        if not _is_chief():  # the chief's end stops this task before it reports the same
            time.sleep(_CHIEF_FIRST_SECONDS)
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


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text}")
    return value


def _fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 1, got {text}")
    return value


def _strategy(text: str) -> str:
    if text in _REFUSED_STRATEGIES:
        raise argparse.ArgumentTypeError(f"{text} is refused: {_REFUSED_STRATEGIES[text]}")
    if text not in STRATEGIES:
        choices = ", ".join(STRATEGIES)
        raise argparse.ArgumentTypeError(f"no strategy {text!r}; there are: {choices}")
    return text


def _steps(text: str) -> tuple[int, int]:
    first, _, last = text.partition(":")
    if not (first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
        raise argparse.ArgumentTypeError(f"must be FIRST:LAST, e.g. 100:110, got {text}")
    return int(first), int(last)


def parser(
    prog: str = "python -m trainer.task",
    description: str = "Train the model of trainer/model.py on the data of trainer/data.py.",
) -> argparse.ArgumentParser:
    """Return the parser of the trainer's options; a program may add its own."""
    options = _OptionParser(prog=prog, description=description, allow_abbrev=False)
    add = options.add_argument
    add("--epochs", type=at_least(1), default=5, help="epochs in all (%(default)s)")
    batch = options.add_mutually_exclusive_group()
    batch.add_argument("--batch-size", type=at_least(1), help="rows of a step per replica (32)")
    batch.add_argument(
        "--global-batch-size", type=at_least(1), help="rows of a step over all replicas"
    )
    add("--job-dir", help="folder or gs:// URL to write to (from AIP_MODEL_DIR, else ./job)")
    add(
        "--strategy",
        type=_strategy,
        metavar=f"{{{','.join(STRATEGIES)}}}",
        help="tf.distribute strategy (chosen from the cluster and the devices)",
    )
    add(
        "--cross-device-ops",
        choices=("nccl", "hierarchical-copy", "reduction-to-one"),
        help="how the mirrored strategy sums over the devices (TensorFlow's choice)",
    )
    add(
        "--tpu",
        metavar="NAME",
        default="local",
        help="with --strategy tpu: its name, or local for the TPU of this machine (%(default)s)",
    )
    add("--learning-rate", type=_positive, help="replaces the optimizer's own")
    add(
        "--scale-learning-rate",
        action="store_true",
        help="multiply the learning rate by the number of replicas",
    )
    add(
        "--warmup-epochs",
        type=_positive,
        metavar="EPOCHS",
        help="epochs in which the learning rate rises from 0, e.g. 0.5 (none)",
    )
    add(
        "--decay",
        choices=("cosine", "step", "exponential"),
        help="how the learning rate falls (not at all)",
    )
    add(
        "--decay-rate",
        type=_fraction,
        metavar="FACTOR",
        help="fraction of the learning rate that is left after --decay-epochs (cosine: 0, step and "
        "exponential: 0.1)",
    )
    add(
        "--decay-epochs",
        type=_positive,
        metavar="EPOCHS",
        help="epochs from the start in which the rate falls once to that fraction (--epochs; step: "
        "a third of them)",
    )
    add(
        "--steps-per-epoch",
        type=at_least(1),
        help="steps after which an epoch is reported (as many as see every example once)",
    )
    add(
        "--seed",
        type=at_least(0, 2**32 - 1),
        help="of the weights, the order of the data and the random numbers of layers (0)",
    )
    add(
        "--same-random",
        action="store_true",
        help="have layers draw the same random numbers for a row on any number of replicas",
    )
    add(
        "--shards",
        type=at_least(1, 10_000),
        help="logical shards of the data: clusters whose size divides it train alike (240)",
    )
    add(
        "--shard-policy",
        choices=("data", "off"),
        help="whether workers share the rows of a tf.data.Dataset of your own (data), or each "
        "has one of its own (off)",
    )
    add(
        "--shuffle",
        type=at_least(0),
        metavar="EXAMPLES",
        help="examples to shuffle among where not all fit into memory; 0 keeps their order (10000)",
    )
    add(
        "--cache",
        metavar="memory|FOLDER",
        help="where parsed examples are kept for the next epochs: memory, or a local disk (none)",
    )
    add(
        "--parallel-reads",
        type=at_least(1),
        metavar="N",
        help="ranges of records read at once per replica (4, from a bucket 16)",
    )
    add(
        "--parallel-calls",
        type=at_least(1),
        metavar="N",
        help="examples parsed at once per replica (autotuned)",
    )
    add(
        "--prefetch",
        type=at_least(0),
        metavar="BATCHES",
        help="batches made ahead (autotuned)",
    )
    add(
        "--precision",
        choices=("float32", "float64", "mixed_bfloat16", "mixed_float16"),
        help="numbers to compute with (float32)",
    )
    add(
        "--tf32",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="multiply float32 in TF32 on GPUs that have it, as TensorFlow does (yes)",
    )
    add(
        "--sync-batch-norm",
        action="store_true",
        help="have every batch normalisation see the rows of all replicas",
    )
    add(
        "--checkpoint-every",
        type=at_least(0),
        default=0,
        metavar="STEPS",
        help="steps between checkpoints, besides those at the end of each epoch (none)",
    )
    add(
        "--resume",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="resume from the newest checkpoint of the job folder, or remove its checkpoints",
    )
    add(
        "--evaluate",
        metavar="PATH",
        help="evaluate a checkpoint, or a saved model (.keras, .weights.h5), instead of training",
    )
    add(
        "--evaluate-on",
        choices=("validation", "test", "training"),
        help="data that --evaluate and an evaluator evaluate (validation, or training if none)",
    )
    add(
        "--export",
        choices=("best",),
        help="keep the best model so far in export/best of the job folder, by the evaluator or "
        "the validation at the end of each epoch (nothing)",
    )
    add(
        "--export-metric",
        metavar="NAME",
        default="val_loss",
        help="metric of the validation data by which a model is the best (%(default)s)",
    )
    add(
        "--export-mode",
        choices=("min", "max"),
        help="whether it is to be low or high (by the metric, as Keras's callbacks)",
    )
    add(
        "--histograms",
        action="store_true",
        help="write the distribution of each weight for TensorBoard after each epoch",
    )
    add(
        "--gradient-norm",
        action="store_true",
        help="write the global norm of the gradients for TensorBoard and in the epochs' records",
    )
    add(
        "--scalars-every",
        type=at_least(0),
        default=0,
        metavar="STEPS",
        help="write scalars for TensorBoard every so many steps too; 0: after each epoch only (0)",
    )
    add(
        "--profile",
        type=_steps,
        metavar="FIRST:LAST",
        help="profile these global steps on the chief for TensorBoard, e.g. 100:110 (none)",
    )
    add(
        "--check-numerics",
        action="store_true",
        help="report the operation, step and line that computes a NaN or an infinity; slow",
    )
    add(
        "--step-timeout",
        type=at_least(0),
        metavar="SECONDS",
        help="time without a finished step after which a task ends; 0 for none (600, 1800 for a "
        "task alone)",
    )
    add(
        "--allow-cpu",
        action="store_true",
        help="train even if TensorFlow sees fewer GPUs than the machine has",
    )
    add(
        "--gpu-memory-growth",
        action="store_true",
        help="allocate GPU memory when it is needed instead of all of it at the start",
    )
    is_default = bool(os.environ.get("DISTLAUNCH_DEBUG"))
    add("--debug", action="store_true", default=is_default, help="show tracebacks")
    return options
