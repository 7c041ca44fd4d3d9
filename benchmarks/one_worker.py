"""Examples a second of one worker against `fit` of Keras: `python benchmarks/one_worker.py`.

The same model on the same data: two dense layers, a small convolutional network and ResNet50 at
64 x 64 on arrays in memory, and a network that waits for JPEG records of 256 x 256, which are
decoded, cropped to 224 x 224 and mirrored at random. `fit` reads them by a tuned tf.data pipeline.
Measured is the time from one epoch's end to the next, the first epoch left out. Both have the same
two cores and alternate; the medians and their ratios are printed, and a limit that is not held is
exit code 1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

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
    steady_rate,
    train,
    verdict,
)

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = {"arrays": 60_000, "colors": 320, "jpeg": 2_048}


@dataclass(frozen=True)
class Case:
    """A model and data of benchmarks/images."""

    model: str
    source: str
    batch_size: int
    epochs: int


CASES = {
    "MLP": Case("mlp", "arrays", 64, epochs=5),
    "CNN": Case("small", "arrays", 64, epochs=4),
    "ResNet50": Case("resnet", "colors", 32, epochs=4),
    "JPEG": Case("jpeg", "jpeg", 64, epochs=11),
}
LIMITS = (
    Limit("MLP, distlaunch", "MLP, fit", least=2.0),
    Limit("CNN, distlaunch", "CNN, fit", least=1.3),
    Limit("ResNet50, distlaunch", "ResNet50, fit", least=1.0),
    Limit("JPEG, distlaunch", "JPEG, fit", least=1.3),
)


def main() -> int:
    """Measure and print; return 1 if a limit does not hold."""
    parser = options("examples a second of one worker, against fit", rounds=5)
    parser.add_argument("--only", choices=CASES, help="measure this model alone")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_python([str(IMAGES / "write.py"), str(folder)])
        run_python([str(IMAGES / "write_jpegs.py"), str(folder)])
        project = make_project(folder / "images", IMAGES)
        ways: dict[str, Callable[[int], float]] = {}
        for title, case in CASES.items():
            if arguments.only in {None, title}:
                sized = case if arguments.rounds else replace(case, epochs=2)
                ways[f"{title}, distlaunch"] = partial(ours, project, sized)
                ways[f"{title}, fit"] = partial(theirs, folder, sized)
        with pinned_to(sorted(os.sched_getaffinity(0))[:2]):
            figures = alternate(ways, arguments.rounds)
    show(figures, "examples/s")
    return verdict(figures, *(limit for limit in LIMITS if limit.above in figures))


def ours(project: Path, case: Case, number: int) -> float:
    """Return the examples a second of distlaunch."""
    size = [f"--epochs={case.epochs}", f"--batch-size={case.batch_size}"]
    variables = {"MODEL": case.model, "SOURCE": case.source, "DATA": str(project.parent)}
    job = train(project, f"{case.model}-{number}", size, workers=1, **variables)
    return examples_per_second(job)


def theirs(folder: Path, case: Case, _: int) -> float:
    """Return the examples a second of `fit`."""
    ends = folder / "ends.json"
    words = [str(IMAGES / "fit.py"), str(case.batch_size), str(case.epochs), str(ends)]
    variables = {"MODEL": case.model, "SOURCE": case.source, "DATA": str(folder)}
    done = subprocess.run(
        [sys.executable, *words],
        env=os.environ | variables | {"CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"fit.py {case.model}: code {done.returncode}\n{done.stderr}")
    return steady_rate(json.loads(ends.read_text(encoding="utf-8")), EXAMPLES[case.source])


if __name__ == "__main__":
    sys.exit(main())
