"""What the checkpoint of a large model costs: `python benchmarks/large_checkpoint.py`.

Two workers hold a ResNet50 with Adam (25.6 million weights, 750 variables, 283 MB). Measured is how
long the training waits for the copy of all values, and for a restore on both workers; against the
same with one call and one collective per variable. All alternate in one process.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import Limit, alternate, distlaunch, options, show, verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

COPY, COPY_EACH = "copy", "copy, a call per variable"
RESTORE, RESTORE_EACH = "restore", "restore, a collective per variable"
LIMITS = (Limit(COPY, COPY_EACH, most=0.7), Limit(RESTORE, RESTORE_EACH, most=0.7))


def main() -> int:
    """Measure and print; return 1 if a limit does not hold."""
    parser = options("what the checkpoint of a large model costs", rounds=5)
    parser.add_argument("--results", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.results:
        measure_in_task(Path(arguments.results), arguments.rounds)
        return 0
    with tempfile.TemporaryDirectory() as name:
        results = Path(name) / "results.json"
        program = [sys.executable, str(Path(__file__).resolve()), f"--rounds={arguments.rounds}"]
        local = ["local", "--workers", "2", "--job-dir", "job", "--"]
        distlaunch(["init", "project"], Path(name))
        distlaunch([*local, *program, f"--results={results}"], Path(name) / "project")
        figures = json.loads(results.read_text(encoding="utf-8"))
    show(figures, "s", digits=3)
    return verdict(figures, *LIMITS)


def measure_in_task(results: Path, rounds: int) -> None:
    """Measure in a task of the cluster; the chief writes the figures."""
    from distlaunch_trainer.cluster.collectives import Cluster
    from distlaunch_trainer.cluster.role import role_from
    from distlaunch_trainer.cluster.strategy import connect

    role = role_from(os.environ)
    cluster = Cluster(role, connect(role))
    ways = {name: timed(cluster, way) for name, way in ways_of(cluster).items()}
    figures = alternate(ways, rounds)
    if role.is_chief:
        results.write_text(json.dumps(figures), encoding="utf-8")
    cluster.barrier()


def ways_of(cluster: Any) -> dict[str, Callable[[], Any]]:
    """Return what is measured."""
    import keras
    import numpy as np
    import tensorflow as tf

    from distlaunch_trainer.model.model_state import ModelState

    with cluster.strategy.scope():
        model = keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3))
        model.compile("adam", "sparse_categorical_crossentropy")
        model.optimizer.build(model.trainable_variables)
    state = ModelState(model, cluster.strategy)
    variables = list(state.variables.values())
    saved = [np.ones(v.shape, v.dtype) for v in variables]

    def copy_each() -> list[np.ndarray]:
        return [tf.convert_to_tensor(variable.value).numpy() for variable in variables]

    def restore_each() -> None:
        for variable, value in zip(variables, saved, strict=True):
            variable.assign(cluster.broadcast_all([value])[0])

    return {
        COPY: state.snapshot,
        COPY_EACH: copy_each,
        RESTORE: lambda: state.assign(cluster.broadcast_all(saved)),
        RESTORE_EACH: restore_each,
    }


def timed(cluster: Any, way: Callable[[], Any]) -> Callable[[int], float]:
    """Return a function that measures `way`, which all tasks begin together."""

    def measure(_: int) -> float:
        cluster.barrier()
        started = time.perf_counter()
        way()
        return time.perf_counter() - started

    return measure


if __name__ == "__main__":
    sys.exit(main())
