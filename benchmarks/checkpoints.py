"""What a checkpoint every 50 steps costs: `python benchmarks/checkpoints.py`.

Two workers train a small convolutional network on images like MNIST's, with `--checkpoint-every 50`
and without; a checkpoint at the end of each epoch is written in both. Measured is the time from one
epoch's end to the next, the first epoch left out. The two alternate, so that a busy machine is busy
for both; the medians and their ratio are printed, and a ratio below the limit is exit code 1.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path

from common import (
    IMAGES,
    Limit,
    alternate,
    events,
    examples_per_second,
    make_project,
    options,
    run_python,
    show,
    train,
    verdict,
)

EVERY = 50
STEPS = 1000
EPOCHS = 5
WAYS = {"none between": 0, f"every {EVERY} steps": EVERY}
LIMIT = Limit(f"every {EVERY} steps", "none between", least=0.97)


def main() -> int:
    """Measure and print; return 1 if the limit does not hold."""
    rounds = options("what a checkpoint every 50 steps costs", rounds=7).parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_python([str(IMAGES / "write.py"), str(folder)])
        project = make_project(folder / "images", IMAGES)
        steps = STEPS if rounds else 2 * EVERY
        ways = {name: partial(rate, project, every, steps) for name, every in WAYS.items()}
        figures = alternate(ways, rounds)
    show(figures, "examples/s")
    return verdict(figures, LIMIT)


def rate(project: Path, every: int, steps: int, number: int) -> float:
    """Return the examples a second with a checkpoint every so many steps; 0 for none between."""
    words = [f"--epochs={EPOCHS}", "--batch-size=64", f"--steps-per-epoch={steps}"]
    words.append(f"--checkpoint-every={every}")
    variables = {"MODEL": "small", "SOURCE": "arrays", "DATA": str(project.parent)}
    job = train(project, f"job-{every}-{number}", words, **variables)
    # A run that wrote no checkpoints would cost nothing.
    written = sum(event["event"] == "checkpoint" for event in events(job))
    assert written == EPOCHS * steps // (every or steps), written
    return examples_per_second(job)


if __name__ == "__main__":
    sys.exit(main())
