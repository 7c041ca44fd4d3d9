"""Relaying a task's lines against a plain loop that does the same: `python benchmarks/relay.py`.

The loop reads the same program's pipe by line, puts a prefix before each and writes it. The two
alternate, so that a busy machine is busy for both; medians and their ratio are printed, and a ratio
below the limit is exit code 1.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 0.5

PROGRAM = """\
import sys

lines = int(sys.argv[1])
for start in range(0, lines, 1000):
    numbers = range(start, start + 1000)
    sys.stdout.write("".join(f"line {n} of what a task writes\\n" for n in numbers))
"""
LOOP = """\
import subprocess
import sys

with subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE) as process:
    for line in process.stdout:
        sys.stdout.buffer.write(b"chief | " + line)
"""


def main() -> int:
    """Measure and print; return 1 if the limit does not hold."""
    parser = argparse.ArgumentParser(description="speed of relaying lines against a plain loop's")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each (5)")
    parser.add_argument("--lines", type=int, default=2_000_000, help="lines to relay (2,000,000)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        lines = max(options.lines // 1000, 1) * 1000
        medians = measured(Path(name), lines, options.rounds)
    for name, seconds in medians.items():
        print(f"{name:18} {seconds:6.2f} s   {lines / seconds:12,.0f} lines/s")
    loop, local = medians.values()
    print(f"ratio {loop / local:.2f}, limit {LIMIT} or more")
    return 0 if loop / local >= LIMIT else 1


def measured(folder: Path, lines: int, rounds: int) -> dict[str, float]:
    """Return the median seconds of each way, run in turn; the first round warms up.

    It counts if it is the only one.
    """
    for name, text in (("program.py", PROGRAM), ("loop.py", LOOP)):
        (folder / name).write_text(text)
    program = [sys.executable, "program.py", str(lines)]
    local = [sys.executable, "-m", "distlaunch", "--quiet", "local", "--workers", "1", "--"]
    ways = {"plain loop": [sys.executable, "loop.py"], "distlaunch local": local}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, way in ways.items():
            seconds[name].append(relay_seconds([*way, *program], folder, lines))
    return {name: statistics.median(values[1:] or values) for name, values in seconds.items()}


def relay_seconds(command: list[str], folder: Path, lines: int) -> float:
    """Return how long a command takes to hand on all the lines into a pipe."""
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        count = 0
        while chunk := process.stdout.read1(1 << 16):
            count += chunk.count(b"\n")
    seconds = time.perf_counter() - began
    if process.returncode or count != lines:
        raise SystemExit(f"{' '.join(command)}: code {process.returncode}, {count} lines")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
