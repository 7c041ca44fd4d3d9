"""`submit --detach` against a script of Google's SDK: `python benchmarks/submit.py`.

Seconds from the start of the process until the job is there, both at `distlaunch emulator`. The
image is in its registry, so nothing is built; distlaunch finds that out by hashing the project and
querying the registry, where the script is given the image. The ways alternate, so that a busy
machine is busy for both; the medians and their ratio are printed, and a ratio above the limit is
exit code 1. It needs root, and the Debian packages of tests/engine.py, which it installs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from common import Limit, alternate, distlaunch, options, run_python, show, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import emulators
import engine as engines

OURS, THEIRS = "distlaunch submit --detach", "a script of the SDK"
LIMIT = Limit(OURS, THEIRS, most=0.6)
JOB = """\
name: digits
project: {project}
region: {region}
bucket: gs://demo-bucket
module: trainer
image: {{repository: "{repository}", base: "{base}"}}
cluster:
  chief: {{machine: n1-standard-4}}
  workers: {{machine: n1-standard-4, count: 1}}
"""
SCRIPT = """\
import sys
from google.auth.credentials import AnonymousCredentials
from google.cloud import aiplatform

url, project, region, image = sys.argv[1:]
aiplatform.init(
    project=project,
    location=region,
    staging_bucket="gs://demo-bucket",
    api_endpoint=url,
    api_transport="rest",
    credentials=AnonymousCredentials(),
)
pool = {
    "machine_spec": {"machine_type": "n1-standard-4"},
    "replica_count": 1,
    "container_spec": {"image_uri": image},
}
aiplatform.CustomJob(display_name="digits", worker_pool_specs=[pool, pool]).submit()
"""


def main() -> int:
    """Measure and print; return 1 if the limit does not hold."""
    given = options("submit --detach against Google's SDK", rounds=10).parse_args()
    with (
        engines.running(install=True) as engine,
        tempfile.TemporaryDirectory() as name,
        # Its jobs wait for machines as long as this takes, and so use no core.
        emulators.running(Path(name), "--faults=slow-states:3600") as emulator,
    ):
        folder = Path(name, "digits")
        image = prepared(engine, folder)
        (folder / "by_sdk.py").write_text(SCRIPT)
        place = [emulator.url, emulators.PROJECT, emulators.REGION, image]
        ways = {
            OURS: partial(ours, folder, emulator.url),
            THEIRS: partial(theirs, folder, place),
        }
        figures = alternate(ways, given.rounds)
    show(figures, "s", digits=2)
    return verdict(figures, LIMIT)


def prepared(engine: engines.Engine, folder: Path) -> str:
    """Write a project, have its image built, and return that by digest."""
    folder.mkdir()
    (folder / "trainer.py").write_text("print('here')\n")
    (folder / "requirements.txt").write_text("six==1.16.0\n")
    place = {"project": emulators.PROJECT, "region": emulators.REGION}
    text = JOB.format(repository=engine.repository("bench"), base=engine.base, **place)
    (folder / "distlaunch.yaml").write_text(text)
    distlaunch(["build"], folder, **engine.environment)
    command = [sys.executable, "-m", "distlaunch", "build"]
    return subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def ours(folder: Path, url: str, _: int) -> float:
    """Return how long it takes by our command."""
    began = time.perf_counter()
    distlaunch(["submit", "--detach"], folder, DISTLAUNCH_ENDPOINT=url)
    return time.perf_counter() - began


def theirs(folder: Path, place: list[str], _: int) -> float:
    """Return how long it takes by the script."""
    began = time.perf_counter()
    run_python([str(folder / "by_sdk.py"), *place])
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
