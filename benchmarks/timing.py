"""What it costs to time the parts of each step: `python benchmarks/timing.py`.

The executions of one run of the trainer are timed and not timed in turn, so that a busy machine is
busy for both; each is waited for. Two dense layers, whose steps are short, and a small
convolutional network, on one worker and on two. Printed are steps per second, and the ratio of the
medians of each run; a limit that is not held is exit code 1.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

from common import IMAGES, Limit, alternate, make_project, options, run_python, show, train, verdict

BATCH_SIZE, EPOCHS = 64, 6
# Appended to model.py: both functions in one process, and the seconds of each execution.
ALTERNATE = """
import atexit, json, time
from distlaunch_trainer.step import step_functions

SECONDS = []
_init, _train = step_functions.StepFunctions.__init__, step_functions.StepFunctions.train


def init(self, *arguments, **options):
    _init(self, *arguments, **options)
    self.both = [
        (self.timer, self._train_function),
        (None, tf.function(self._train, autograph=False)),
    ]


def train(self, batches, steps, signals, **options):
    number = len(SECONDS) % 2
    timer = self.timer
    self.timer, self._train_function = self.both[number]
    began = time.perf_counter()
    results = _train(self, batches, steps, signals, **options)
    results.loss.numpy()
    SECONDS.append((number, int(steps), time.perf_counter() - began))
    self.timer = timer
    return results


def write():
    with open(os.environ["SECONDS"], "w") as file:
        json.dump(SECONDS, file)


step_functions.StepFunctions.__init__, step_functions.StepFunctions.train = init, train
if '"type": "worker"' not in os.environ.get("TF_CONFIG", ""):
    atexit.register(write)
"""
CASES = {
    f"{title}, {workers} worker{'s' * (workers > 1)}": (model, workers)
    for title, model in (("MLP", "mlp"), ("CNN", "small"))
    for workers in (1, 2)
}


def main() -> int:
    """Measure and print; return 1 if a limit does not hold."""
    parser = options("the cost of timing the parts of steps", rounds=3)
    parser.add_argument("--only", choices=CASES, help="measure this case alone")
    arguments = parser.parse_args()
    cases = {arguments.only: CASES[arguments.only]} if arguments.only else CASES
    epochs = EPOCHS if arguments.rounds else 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_python([str(IMAGES / "write.py"), str(folder)])
        project = make_project(folder / "images", IMAGES)
        with (project / "trainer/model.py").open("a", encoding="utf-8") as file:
            file.write(ALTERNATE)
        others: dict[str, list[float]] = {case: [] for case in cases}
        ways = {
            f"{case}, timed": partial(run, folder, case, epochs, others[case]) for case in cases
        }
        figures = alternate(ways, arguments.rounds)
    for case, values in others.items():
        figures[f"{case}, not timed"] = values[-len(figures[f"{case}, timed"]) :]
    show(figures, "steps/s")
    limits = [Limit(f"{case}, timed", f"{case}, not timed", least=0.98) for case in cases]
    return verdict(figures, *limits)


def run(folder: Path, case: str, epochs: int, others: list[float], number: int) -> float:
    """Train; return the steps per second of timed executions, and append those of the others."""
    model, workers = CASES[case]
    path = folder / "seconds.json"
    words = [f"--epochs={epochs}", f"--batch-size={BATCH_SIZE}"]
    variables = {"MODEL": model, "DATA": str(folder), "SOURCE": "arrays", "SECONDS": str(path)}
    job = f"{model}-{workers}-{number}"
    train(folder / "images", job, words, workers=workers, **variables)
    executions = json.loads(path.read_text(encoding="utf-8"))
    most = max(steps for _, steps, _ in executions)
    timed, not_timed = (
        statistics.median(most / s for kind, steps, s in executions[8:] if (kind, steps) == each)
        for each in ((0, most), (1, most))
    )
    others.append(not_timed)
    return timed


if __name__ == "__main__":
    sys.exit(main())
