"""The hash of an image's context against `sha256sum`: `python benchmarks/context.py`.

A project holds 20,000 files, 500 MB in all: nine of ten are noise, as images are, one is text. It
is hashed as `submit` does, under the rendered .dockerignore and scanned for secrets. `sha256sum`
reads the same files. The two alternate, so that a busy machine is busy for both, and both read from
the page cache. A ratio above its limit is exit code 1.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from common import Limit, alternate, options, show, verdict

from distlaunch.image.context import read_context
from distlaunch.image.recipe import read_recipe
from distlaunch.job.model import Cluster, Image, Job, Machine, Pool

if TYPE_CHECKING:
    from collections.abc import Callable

HASH = Limit("hash", "sha256sum", most=2)
IN_A_FOLDER = 200
TEXT = b'{"image": "photos/0123.png", "label": 7, "scores": [0.125, 0.25, -4.5e-06]}\n'


def main() -> int:
    """Measure and print; return 1 if a limit does not hold."""
    parser = options("speed of the hash of an image's context", rounds=9)
    parser.add_argument("--files", type=int, default=20_000, help="files of the project (20,000)")
    text = "megabytes of all of them (500)"
    parser.add_argument("--megabytes", type=float, default=500, help=text)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        project = Path(name, "project")
        write(project, chosen.files, int(chosen.megabytes * 1e6 / chosen.files))
        ignore = read_recipe(job(), project).ignore

        ways: dict[str, Callable[[], object]] = {
            "sha256sum": lambda: sha256sum(project),
            "hash": lambda: read_context(project, ignore),
        }
        timed = {name: lambda _, way=way: seconds(way) for name, way in ways.items()}
        figures = alternate(timed, chosen.rounds)
    show(figures, "s", digits=3)
    return verdict(figures, HASH)


def job() -> Job:
    """Return a job with the project's data in its image."""
    return Job("context", Cluster(Pool(Machine("n1-standard-4"))), image=Image(include=("data",)))


def write(project: Path, files: int, size: int) -> None:
    """Write a trainer, and the files."""
    noise = random.Random(1)  # noqa: S311 - no secret is made
    (project / "trainer").mkdir(parents=True)
    (project / "trainer/task.py").touch()
    for number in range(files):
        folder = project / f"data/{number // IN_A_FOLDER:04}"
        folder.mkdir(parents=True, exist_ok=True)
        is_text = number % 10 == 0
        content = (TEXT * (size // len(TEXT) + 1))[:size] if is_text else noise.randbytes(size)
        (folder / f"{number:06}.{'json' if is_text else 'png'}").write_bytes(content)


def sha256sum(project: Path) -> None:
    """Have `sha256sum` hash all files, as many at once as a command line takes."""
    found = subprocess.run(
        ["find", project, "-type", "f", "-print0"], check=True, capture_output=True
    )
    subprocess.run(
        ["xargs", "-0", "sha256sum"], input=found.stdout, check=True, stdout=subprocess.DEVNULL
    )


def seconds(way: Callable[[], object]) -> float:
    """Return how long a way takes."""
    began = time.perf_counter()
    way()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
