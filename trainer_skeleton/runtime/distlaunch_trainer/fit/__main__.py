"""``python -m distlaunch_trainer.fit train.py [ARGS]``, or ``-m trainer.task [ARGS]``."""

from __future__ import annotations

import argparse
import os
import sys

from distlaunch_trainer.options import SCRIPT_OPTIONS, Settings, add_option
from distlaunch_trainer.process import launch

from .program import LEGACY_KERAS, Program

_CHANGES = {
    "step_timeout": {
        "help": "time without a finished step after which a task ends; 0 for none (600, 0 for a "
        "task alone)"
    }
}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options, which come before the script."""
    options = argparse.ArgumentParser(
        prog="python -m distlaunch_trainer.fit",
        description="Run a script that calls fit() of Keras as one task of TF_CONFIG's cluster.",
        allow_abbrev=False,
    )
    for name in (*SCRIPT_OPTIONS, "debug"):
        add_option(options, name, **_CHANGES.get(name, {}))
    add = options.add_argument
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
        from .script import run_program

        run_program(Program.of(options), Settings.of(options))

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
