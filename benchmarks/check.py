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

FILES, LINES = 1_000, 40
OWN = "my-own-project"
WORDS = (
    f"--set=project={OWN}",
    f"--set=bucket=gs://{OWN}",
    f"--set=image.repository=us-central1-docker.pkg.dev/{OWN}/training/digits",
)
BASE, FIRST, AGAIN = "bare click program", "check, the first time", "check, nothing changed"
LIMITS = (Limit(FIRST, BASE, most=12.0), Limit(AGAIN, BASE, most=12.0))


def main() -> int:
    """Measure, print, and say by the exit code whether the limit holds."""
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
    """Return a module as people write them."""
    lines = ["import math", f"from trainer.more import part_{max(number - 1, 0)} as before", ""]
    while len(lines) < LINES:
        name = f"scaled_{len(lines)}"
        lines += ["", "", f"def {name}(values, factor={number}):"]
        lines += ["    return [math.sqrt(abs(each)) * factor for each in values if each]"]
    return "\n".join(lines) + "\n"


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
