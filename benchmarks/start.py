"""From the command to the first step, with 4 workers against 1: `python benchmarks/start.py`.

The digits, each with `distlaunch local`, from the start of the launcher to the end of the chief's
first step. The two alternate, so that a busy machine is busy for both; the medians and their ratio
are printed, and a ratio above the limit is exit code 1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 1.7
WORKERS = (1, 4)


def main() -> int:
    """Measure, print, and say by the exit code whether the limit holds."""
    parser = argparse.ArgumentParser(description="start to first step, 4 workers against 1")
    parser.add_argument(
        "--rounds", type=int, default=5, help="measurements of each, after one that warms up (5)"
    )
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        project = Path(name) / "digits"
        run(["init", str(project)], Path(name))
        medians = measured(project, rounds)
    for workers, seconds in medians.items():
        print(f"{workers} worker{'s' if workers > 1 else ' '}   {seconds:6.2f} s to the first step")
    one, several = medians.values()
    print(f"ratio {several / one:.2f}, limit {LIMIT}")
    return 0 if several / one <= LIMIT else 1


def measured(project: Path, rounds: int) -> dict[int, float]:
    """Return the median seconds to the first step, run in turn; the first round warms up.

    It counts if it is the only one.
    """
    seconds: dict[int, list[float]] = {workers: [] for workers in WORKERS}
    for number in range(rounds + 1):
        for workers in WORKERS:
            seconds[workers].append(first_step(project, workers, f"job-{number}-{workers}"))
    return {workers: statistics.median(values[1:] or values) for workers, values in seconds.items()}


def first_step(project: Path, workers: int, job: str) -> float:
    """Return the seconds from the start of the launcher to the end of the chief's first step."""
    began = time.time()
    options = ["--workers", str(workers), "--job-dir", job]
    run(["local", *options, "--", "--epochs=1", "--steps-per-epoch=1"], project)
    events = project / job / "task-logs/attempt-1/chief.events.jsonl"
    for line in events.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["event"] == "step":
            return event["time"] - began
    raise SystemExit(f"{events} tells of no step")


def run(words: list[str], folder: Path) -> None:
    """Run a command of distlaunch's."""
    command = [sys.executable, "-m", "distlaunch", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: code {done.returncode}\n{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
