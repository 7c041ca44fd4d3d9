"""`distlaunch forecast` against runs that it has not seen: `python benchmarks/forecast.py`.

Steps of 1 and 2 workers on this machine are measured, of a small model (5 ms) and of a large one
(70 ms); from these runs alone `distlaunch forecast` predicts 3 and 4 workers, which are then
compared with real runs. Each worker has one core while there are enough, as with `compare`;
on a machine with two cores 3 and 4 workers share them, which is part of what is predicted. All
alternate. A run is repeated if other processes used the machine meanwhile. An error of more than
15 % is exit code 1.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median

from common import IMAGES, alternate, make_project, options, pinned_to, run_python, show, train

BATCH_SIZE = 64
STEPS = {"small": 300, "wide": 30}  # of each epoch
EPOCHS = 3
KNOWN, UNSEEN = (1, 2), (3, 4)
LIMIT = 0.15
MOST_OTHERS = 0.1  # of the machine's time, used by other processes
TRIES = 8

Ways = dict[tuple[str, int], list[str]]


def main() -> int:
    """Measure and print; return 1 if a forecast is too far off."""
    rounds = options("steps as predicted, against real ones", rounds=3).parse_args().rounds
    jobs: Ways = {(model, workers): [] for model in STEPS for workers in (*KNOWN, *UNSEEN)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_python([str(IMAGES / "write.py"), str(folder)])
        project = make_project(folder / "images", IMAGES)
        ways = {
            f"{model}, {workers} workers": partial(step_ms, project, model, workers, runs)
            for (model, workers), runs in jobs.items()
        }
        figures = alternate(ways, rounds)
        show(figures, "ms", digits=2)
        counted = {key: runs[1:] or runs for key, runs in jobs.items()}
        return max([verdict(project, model, counted, figures) for model in STEPS])


def verdict(project: Path, model: str, jobs: Ways, figures: dict[str, list[float]]) -> int:
    """Print predicted and measured steps; return 1 if one is too far off."""
    order = sorted(STEPS, key=lambda name: name != model)  # the model in question is the first
    names = [run for name in order for workers in KNOWN for run in jobs[name, workers]]
    words = ["--machine", "local", "--workers", ",".join(map(str, UNSEEN)), "--json"]
    command = [sys.executable, "-m", "distlaunch", "forecast", *names, *words]
    with pinned_to(sorted(os.sched_getaffinity(0))[: max(KNOWN)]):
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=True)
    code = 0
    for shape in json.loads(done.stdout)["shapes"]:
        low, mid, high = (1000 * shape["step_seconds"][key] for key in ("low", "mid", "high"))
        measured = median(figures[f"{model}, {shape['workers']} workers"])
        error = mid / measured - 1
        print(
            f"{model}, {shape['workers']} workers: predicted {mid:.2f} ms ({low:.2f} - {high:.2f}),"
            f" measured {measured:.2f} ms: {error:+.1%}, limit {LIMIT:.0%}"
        )
        code = max(code, int(abs(error) > LIMIT))
    return code


def step_ms(project: Path, model: str, workers: int, runs: list[str], number: int) -> float:
    """Train on undisturbed cores; return the milliseconds of a step, and append the job's name."""
    all_cores = sorted(os.sched_getaffinity(0))
    cores = all_cores[: max(KNOWN)]
    own = [cores[number % len(cores)]] if workers == 1 else cores
    size = [f"--epochs={EPOCHS}", f"--batch-size={BATCH_SIZE}", f"--steps-per-epoch={STEPS[model]}"]
    variables = {"MODEL": model, "SOURCE": "arrays", "DATA": str(project.parent)}
    for attempt in range(TRIES):
        job = f"{model}-{workers}-{number}-{attempt}"
        before = others_seconds(), time.monotonic()
        with pinned_to(own):
            folder = train(project, job, size, workers=workers, **variables)
        passed = (time.monotonic() - before[1]) * len(all_cores)
        share = (others_seconds() - before[0]) / passed
        if share <= MOST_OTHERS:
            break
        print(f"{job}: other processes used {share:.0%} of the machine", file=sys.stderr)
    runs.append(job)
    return 1000 * json.loads((folder / "summary.json").read_text())["timing"]["total"]


def others_seconds() -> float:
    """Return the CPU time that all but this process and those it started have used (Linux)."""
    user, nice, system, _, _, *others = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    busy = sum(map(int, (user, nice, system, *others[:3]))) / os.sysconf("SC_CLK_TCK")
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return busy - sum(each.ru_utime + each.ru_stime for each in own)


if __name__ == "__main__":
    sys.exit(main())
