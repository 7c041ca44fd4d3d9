"""``python -m distlaunch_trainer.fit train.py [ARGS]``, or ``-m trainer.task [ARGS]``."""

from __future__ import annotations

import argparse
import os
import sys

from distlaunch_trainer.options import at_least
from distlaunch_trainer.process import launch

from .program import LEGACY_KERAS, Program


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options, which come before the script."""
    options = argparse.ArgumentParser(
        prog="python -m distlaunch_trainer.fit",
        description="Run a script that calls fit() of Keras as one task of TF_CONFIG's cluster.",
        allow_abbrev=False,
    )
    add = options.add_argument
    add("--job-dir", help="folder or gs:// URL to write to (from AIP_MODEL_DIR, else ./job)")
    add(
        "--resume",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="resume from the checkpoints of the job folder, or remove them",
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
    add(
        "--checkpoint-every",
        type=at_least(0),
        default=0,
        metavar="STEPS",
        help="save after so many steps, and at the end of each epoch",
    )
    add(
        "--step-timeout",
        type=at_least(0),
        metavar="SECONDS",
        help="time without a finished step after which a task ends; 0 for none (600, 0 for a task "
        "alone)",
    )
    add(
        "--sync-batch-norm",
        action="store_true",
        help="have all batch normalizations take their statistics from all replicas",
    )
    add(
        "--same-random",
        action="store_true",
        help="have layers draw the same random numbers for a row on any number of replicas",
    )
    is_default = bool(os.environ.get("DISTLAUNCH_DEBUG"))
    add("--debug", action="store_true", default=is_default, help="show tracebacks")
    add(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,
        help="run a module, e.g. trainer.task, as python -m does; its arguments follow",
    )
    add("script", nargs="?", help="the Python file to run")
    add("args", nargs=argparse.REMAINDER, help="arguments of the script")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run the script; return the exit code."""

    def train(options: argparse.Namespace) -> None:
        # TensorFlow is imported here, so that wrong options are reported at once.
        from .script import FitOptions, run_program

        run_program(Program.of(options), FitOptions.of(options))

    options = parser()
    parsed = options.parse_args(arguments)
    if not (parsed.script or parsed.module):
        options.error("no program: name a Python file, or a module after -m")
    if (legacy_keras := Program.of(parsed).legacy_keras()) is not None:
        os.environ[LEGACY_KERAS] = legacy_keras  # which TensorFlow reads before the script runs
    return launch(train, parsed)


if __name__ == "__main__":
    code = main()
    if code:  # all tasks have agreed to stop; TensorFlow would wait for their iterators and peers
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
