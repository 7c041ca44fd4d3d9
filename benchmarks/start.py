"""From the command to the first step, with 4 workers against 1: `python benchmarks/start.py`.

The digits, each with `distlaunch local`, from the start of the launcher to the end of the chief's
first step. The two alternate, so that a busy machine is busy for both; the medians and their ratio
are printed, and a ratio above the limit is exit code 1.
"""

from __future__ import annotations

import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from common import Limit, alternate, first_step, make_project, options, show, train, verdict

LIMIT = Limit("4 workers", "1 worker", most=1.5)
WORKERS = {"1 worker": 1, "4 workers": 4}


def main() -> int:
    """Measure and print; return 1 if the limit does not hold."""
    rounds = options("start to first step, 4 workers against 1", rounds=5).parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        project = make_project(Path(name) / "digits")
        ways = {name: partial(seconds, project, workers) for name, workers in WORKERS.items()}
        figures = alternate(ways, rounds)
    show(figures, "s to the first step", digits=2)
    return verdict(figures, LIMIT)


def seconds(project: Path, workers: int, number: int) -> float:
    """Return the seconds from the start of the launcher to the end of the chief's first step."""
    began = time.time()
    words = ["--epochs=1", "--steps-per-epoch=1"]
    return first_step(train(project, f"job-{number}-{workers}", words, workers=workers), began)


if __name__ == "__main__":
    sys.exit(main())
