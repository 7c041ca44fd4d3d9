"""CPU time of `distlaunch check --offline` on 1,000 files: `python benchmarks/check.py`.

A project as `init` makes it, its package grown to 1,000 Python files of forty lines, against a bare
click program's `--help`; once as it is looked at for the first time, once when nothing has changed
since. They alternate, so that a busy machine is busy for all; the medians and their ratios are
printed, and a ratio above the limit is exit code 1.
"""

from __future__ import annotations

import compileall
import os
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

from common import Limit, alternate, make_project, options, show, verdict
from help import BARE, cpu_seconds

import distlaunch

FILES = 1_000
SOURCE = '''\
"""Readings of station NUMBER, and what is made of them."""

import math

from trainer.more import part_BEFORE as before

STATION = "station-NUMBER"
LIMITS = {"temperature": (-60.0, 60.0), "pressure": (800.0, 1100.0)}


class Readings:
    """What a station has measured.

    Args:
        values: The readings, one a minute.
        name: What was measured.
    """

    def __init__(self, values, name="temperature"):
        self.values = list(values)
        self.name = name

    def mean(self):
        """Return the mean, or none where nothing was measured."""
        if not self.values:
            return math.nan
        return sum(self.values) / len(self.values)

    def is_sound(self):
        least, most = LIMITS[self.name]
        return all(least <= value <= most for value in self.values)


def smoothed(readings, factor=0.5):
    # An exponential average: what comes later counts more.
    last, found = readings.mean(), []
    for value in readings.values:
        last = factor * value + (1 - factor) * last
        found.append(last)
    return Readings(found, readings.name)
'''
OWN = "my-own-project"
WORDS = (
    f"--set=project={OWN}",
    f"--set=bucket=gs://{OWN}",
    f"--set=image.repository=us-central1-docker.pkg.dev/{OWN}/training/digits",
)
BASE, FIRST, AGAIN = "bare click program", "check, the first time", "check, nothing changed"
LIMITS = (Limit(FIRST, BASE, most=12.0), Limit(AGAIN, BASE, most=12.0))


def main() -> int:
    """Measure and print; return 1 if the limit does not hold."""
    given = options("CPU time of a check against a bare click program's", rounds=10).parse_args()
    compileall.compile_dir(Path(distlaunch.__file__).parent, quiet=2)
    with tempfile.TemporaryDirectory() as name:
        bare = Path(name) / "bare.py"
        bare.write_text(BARE, encoding="utf-8")
        project = grown(make_project(Path(name) / "digits"))
        os.chdir(project)
        ways = {
            BASE: partial(milliseconds, [sys.executable, str(bare), "--help"]),
            FIRST: partial(first, project),
            AGAIN: again,
        }
        figures = alternate(ways, given.rounds)
        os.chdir("/")
    show(figures, "ms CPU", digits=1)
    return verdict(figures, *LIMITS)


def grown(project: Path) -> Path:
    """Fill a project's package up to the number of files; each imports the one before."""
    package = project / "trainer" / "more"
    package.mkdir()
    (package / "__init__.py").touch()
    there = sum(path.is_file() for path in project.rglob("*"))
    for number in range(FILES - there):
        (package / f"part_{number}.py").write_text(source(number), encoding="utf-8")
    return project


def source(number: int) -> str:
    """Return a module as people write them, of forty lines."""
    return SOURCE.replace("NUMBER", str(number)).replace("BEFORE", str(max(number - 1, 0)))


def first(project: Path, number: int) -> float:
    """Return what a check takes that finds nothing of one before."""
    shutil.rmtree(project / ".distlaunch", ignore_errors=True)
    return again(number)


def again(_: int) -> float:
    """Return what a check takes."""
    words = ["-m", "distlaunch", "check", "--offline", *WORDS]
    return milliseconds([sys.executable, *words], 0)


def milliseconds(command: list[str], _: int) -> float:
    """Return the CPU time of a command."""
    return cpu_seconds(command) * 1_000


if __name__ == "__main__":
    sys.exit(main())
