"""A `fit` script on two workers, against the same with tf_keras: `python benchmarks/fit_script.py`.

The script of TensorFlow's tutorial on multi-worker training (images/tutorial.py), with the small
model and data that end with the epoch: by `python -m distlaunch_trainer.fit` with Keras 3, and
plainly with tf_keras, whose `fit` supports the strategy. Both run as two processes that share the
machine's cores. Measured is the time from one epoch's end to the next, the first epoch left out.
A limit that is not held is exit code 1.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path

from common import IMAGES, Limit, alternate, options, run_python, show, steady_rate, verdict
from throughput import BATCH_SIZE, EPOCHS, SHORT, STEPS, WORKERS, run_cluster

OURS, THEIRS = "distlaunch_trainer.fit", "tf_keras"
LIMITS = (Limit(OURS, THEIRS, least=1.0),)


def main() -> int:
    """Measure and print; return 1 if a limit does not hold."""
    arguments = options("examples a second of a fit script with two workers", rounds=5).parse_args()
    size = {"steps": STEPS, "epochs": EPOCHS} if arguments.rounds else SHORT
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_python([str(IMAGES / "write.py"), name])
        variables = {"MODEL": "small", "DATA": name}
        legacy = {"TF_USE_LEGACY_KERAS": "1"}
        runner = ["-m", "distlaunch_trainer.fit", "--no-resume", "--job-dir", str(folder / "job")]

        def rate(words: list[str], extra: dict[str, str], _: int) -> float:
            script = [
                str(IMAGES / "tutorial.py"),
                str(size["steps"]),
                str(size["epochs"]),
                "finite",
            ]
            ends = run_cluster([*words, *script], folder, variables | extra)
            return steady_rate(ends, size["steps"] * BATCH_SIZE * WORKERS)

        ways = {OURS: partial(rate, runner, {}), THEIRS: partial(rate, [], legacy)}
        figures = alternate(ways, arguments.rounds)
    show(figures, "examples/s")
    return verdict(figures, *LIMITS)


if __name__ == "__main__":
    sys.exit(main())
