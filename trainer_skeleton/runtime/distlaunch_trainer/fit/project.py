"""Train a project's model with Keras's own ``fit``, to compare the trainer with it.

``python -m distlaunch_trainer.fit.project [--package trainer] [OPTIONS]``, with the options of the
trainer, in one process.
"""

from __future__ import annotations

import argparse
import sys

from distlaunch_trainer import options
from distlaunch_trainer.process import launch


def main(arguments: list[str] | None = None) -> int:
    """Parse the options and train; return the exit code."""

    def train(settings: argparse.Namespace) -> None:
        # TensorFlow is imported here, so that wrong options are reported at once.
        from .plain_fit import fit_project

        fit_project(settings)

    parser = options.parser(
        "python -m distlaunch_trainer.fit.project", "Train a project's model with Keras's fit()."
    )
    parser.add_argument("--package", default="trainer", help="of model.py and data.py (trainer)")
    return launch(train, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
