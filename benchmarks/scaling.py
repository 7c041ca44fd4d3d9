"""Examples a second of two workers against one: `python benchmarks/scaling.py`.

Each worker has one core and 64 images a step; so there is twice as much to do, on twice as many
cores, and what is lost is the exchange of the gradients. Once with steps of some 5 ms, in which
there is much to exchange for little to compute, and once with steps of 50 ms and more. All
alternate, so that a busy machine is busy for all; the medians and their ratios are printed, and a
limit that is not held is exit code 1.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

from common import (
    IMAGES,
    Limit,
    alternate,
    examples_per_second,
    make_project,
    options,
    pinned_to,
    run_python,
    show,
    train,
    verdict,
)

BATCH_SIZE = 64
STEPS = {"small": 600, "wide": 60}
EPOCHS = 4
LIMITS = (
    Limit("small, 2 workers", "small, 1 worker", least=1.25),
    Limit("wide, 2 workers", "wide, 1 worker", least=1.8),
)
WAYS = {
    "small, 1 worker": ("small", 1),
    "small, 2 workers": ("small", 2),
    "wide, 1 worker": ("wide", 1),
    "wide, 2 workers": ("wide", 2),
}


def main() -> int:
    """Measure and print; return 1 if a limit does not hold."""
    rounds = options("examples a second, two workers against one", rounds=5).parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_python([str(IMAGES / "write.py"), str(folder)])
        project = make_project(folder / "images", IMAGES)
        part = 1 if rounds else 20
        ways = {
            name: partial(rate, project, model, workers, STEPS[model] // part)
            for name, (model, workers) in WAYS.items()
        }
        figures = alternate(ways, rounds)
    show(figures, "examples/s")
    for model in STEPS:
        one = statistics.median(figures[f"{model}, 1 worker"])
        print(f"{model}: a step of one worker's takes {1000 * BATCH_SIZE / one:.1f} ms")
    return verdict(figures, *LIMITS)


def rate(project: Path, model: str, workers: int, steps: int, number: int) -> float:
    """Return the examples a second of workers that have one core each."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    # The one worker is now on the one core, now on the other, should they differ.
    own = cores if workers > 1 else [cores[number % len(cores)]]
    size = [f"--epochs={EPOCHS}", f"--batch-size={BATCH_SIZE}", f"--steps-per-epoch={steps}"]
    variables = {"MODEL": model, "SOURCE": "arrays", "DATA": str(project.parent)}
    job = f"{model}-{workers}-{number}"
    with pinned_to(own):
        return examples_per_second(train(project, job, size, workers=workers, **variables))


if __name__ == "__main__":
    sys.exit(main())
