"""From the command to the first step, resumed and from scratch: `python benchmarks/resume.py`.

1,000,000 records. A run is stopped (SIGTERM) after 96 % of its first epoch; then such a run is
resumed, and one is started from scratch, each from the start of the launcher to the end of the
chief's first step, with the index of the records already there. The two alternate, so that a busy
machine is busy for both; the medians and their ratio are printed, and a ratio above the limit is
exit code 1.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from common import (
    Limit,
    alternate,
    distlaunch,
    events,
    first_step,
    make_project,
    options,
    run_python,
    show,
    train,
    verdict,
)

RECORDS = Path(__file__).with_name("records")
LIMIT = Limit("resumed", "from scratch", most=1.2)
EXAMPLES, BATCH = 1_000_000, 2_000
STOP_AT = EXAMPLES // BATCH * 96 // 100
SIZE = ["--epochs=1", f"--global-batch-size={BATCH}"]
STOPPED = 143


def main() -> int:
    """Measure and print; return 1 if the limit does not hold."""
    rounds = options("start to first step, resumed or new", rounds=7).parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_python([str(RECORDS / "write.py"), str(folder), str(EXAMPLES)])
        project = make_project(folder / "records", RECORDS)
        stopped = stopped_job(project)
        ways = {
            "from scratch": partial(from_scratch, project),
            "resumed": partial(resumed, project, stopped),
        }
        figures = alternate(ways, rounds)
    show(figures, "s to the first step", digits=2)
    return verdict(figures, LIMIT)


def stopped_job(project: Path) -> Path:
    """Train up to where the run is stopped, which also makes the index; return its folder."""
    words = ["local", "--workers", "2", "--job-dir", "stopped", "--", *SIZE]
    variables = {"DATA": str(project.parent), "STOP_AT": str(STOP_AT)}
    distlaunch(words, project, expected=STOPPED, **variables)
    assert list((project / "stopped/checkpoints").glob(f"step-*{STOP_AT}"))
    assert list(project.parent.glob(".records-index.json"))
    return project / "stopped"


def from_scratch(project: Path, number: int) -> float:
    """Return the seconds to the first step of a run that starts with nothing."""
    began = time.time()
    words = [*SIZE, "--steps-per-epoch=1"]
    return first_step(train(project, f"new-{number}", words, DATA=str(project.parent)), began)


def resumed(project: Path, stopped: Path, number: int) -> float:
    """Return the seconds to the first step of a run that goes on where another stopped."""
    job = f"resumed-{number}"
    shutil.copytree(stopped, project / job, ignore=shutil.ignore_patterns("task-logs"))
    began = time.time()
    seconds = first_step(train(project, job, SIZE, DATA=str(project.parent)), began)
    ready = next(event for event in events(project / job) if event["event"] == "ready")
    assert ready["step"] == STOP_AT, ready
    return seconds


if __name__ == "__main__":
    sys.exit(main())
