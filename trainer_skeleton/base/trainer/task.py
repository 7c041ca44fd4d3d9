"""The training program of every task of the cluster: ``python -m trainer.task``."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable
from typing import NoReturn

_CHIEF_FIRST_SECONDS = 5.0


class _OptionParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line."""
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


def _at_least(least: int, most: int = 2**31 - 1) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be {least} or more, got {value}")
        if value > most:
            raise argparse.ArgumentTypeError(f"must be {most} or less, got {value}")
        return value

    number.__name__ = "whole number"
    return number


def _learning_rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text}")
    return value


def parser() -> argparse.ArgumentParser:
    """Return the parser of the program's options."""
    options = _OptionParser(prog="python -m trainer.task", description=__doc__, allow_abbrev=False)
    add = options.add_argument
    add("--epochs", type=_at_least(1), default=5, help="epochs in all (%(default)s)")
    batch = options.add_mutually_exclusive_group()
    batch.add_argument("--batch-size", type=_at_least(1), help="rows of a step per replica (32)")
    batch.add_argument(
        "--global-batch-size", type=_at_least(1), help="rows of a step over all replicas"
    )
    add("--job-dir", help="folder or gs:// URL to write to (from AIP_MODEL_DIR, else ./job)")
    add("--learning-rate", type=_learning_rate, help="replaces the optimizer's own")
    add(
        "--steps-per-epoch",
        type=_at_least(1),
        help="steps after which an epoch is reported (as many as see every example once)",
    )
    add(
        "--seed",
        type=_at_least(0, 2**32 - 1),
        help="of the weights and of the order of the data (0)",
    )
    add(
        "--shards",
        type=_at_least(1, 10_000),
        help="logical shards of the data: clusters whose size divides it train alike (12)",
    )
    add(
        "--shard-policy",
        choices=("auto", "file", "data", "off"),
        help="how TensorFlow shards a tf.data.Dataset of your own (auto)",
    )
    add(
        "--shuffle",
        type=_at_least(0),
        metavar="EXAMPLES",
        help="examples to shuffle among; 0 keeps the order of the files (10000)",
    )
    add(
        "--precision",
        choices=("float32", "float64", "mixed_bfloat16", "mixed_float16"),
        help="numbers to compute with (float32)",
    )
    add(
        "--sync-batch-norm",
        action="store_true",
        help="have every batch normalisation see the rows of all replicas",
    )
    add(
        "--checkpoint-every",
        type=_at_least(0),
        default=0,
        metavar="STEPS",
        help="steps between checkpoints, besides those at the end of each epoch (none)",
    )
    add(
        "--resume",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="go on from the newest checkpoint of the job folder, or remove its checkpoints",
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
    is_asked = bool(os.environ.get("DISTLAUNCH_DEBUG"))
    add("--debug", action="store_true", default=is_asked, help="show tracebacks")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Train; return the exit code."""
    from trainer.distributed import stop_signal

    settings = parser().parse_args(arguments)
    os.environ["KERAS_BACKEND"] = "tensorflow"
    # Read before TensorFlow is imported: by default it requests 64 MiB of a bucket at each entry
    # into a file, and keeps none of it.
    os.environ.setdefault("GCS_READ_CACHE_BLOCK_SIZE_MB", "4")
    os.environ.setdefault("GCS_READ_CACHE_MAX_SIZE_MB", "256")
    if not settings.debug:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # or its own doings fill the log
    stop_signal.block()  # until the run handles SIGTERM
    try:
        return _train(settings)
    finally:
        stop_signal.unblock()


def _train(settings: argparse.Namespace) -> int:
    # TensorFlow is imported when the options are known to be right.
    from trainer.distributed.run import run
    from trainer.distributed.settings import Settings, UserCode

    def load() -> UserCode:
        from trainer import data, model

        return UserCode(
            create_model=model.create_model,
            callbacks=getattr(model, "callbacks", list),
            training=data.training,
            validation=getattr(data, "validation", lambda: None),
        )

    return run(Settings(**vars(settings)), load)


if __name__ == "__main__":
    sys.exit(main())
