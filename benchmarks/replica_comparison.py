"""The comparison of replicas against an epoch: `python benchmarks/replica_comparison.py`.

Two virtual devices train a convolutional network on 12,800 images of 28 x 28, and ResNet50 on 1,280
of 64 x 64 in color, with Adam: 20 and 750 variables, of 0.2 and 283 MB a replica. Measured are the
seconds of an epoch by `fit`, and of the comparison at its end, in the same run. The medians and the
ratios are printed, and a ratio above its limit is exit code 1.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
from common import Limit, alternate, options, show, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "trainer_skeleton/runtime"))
sys.path.insert(0, str(Path(__file__).with_name("images")))
from model import layered

from distlaunch_trainer import distributed_fit
from distlaunch_trainer.loop.replica_comparison import ReplicaComparison

CASES = {"CNN": ("small", (12_800, 28, 28)), "ResNet50": ("resnet", (1_280, 64, 64, 3))}
LIMITS = [Limit(f"{name}, comparison", f"{name}, epoch", most=0.01) for name in CASES]
seconds: list[float] = []  # of the last comparison


def main() -> int:
    """Measure and print; return 1 if a limit does not hold."""
    rounds = options("seconds of a comparison of replicas", rounds=3).parse_args().rounds
    os.environ["DISTLAUNCH_DEVICES"] = "2"
    check = ReplicaComparison.check

    def timed(self: ReplicaComparison, step: int) -> None:
        started = time.perf_counter()
        check(self, step)
        seconds[:] = [time.perf_counter() - started]

    ReplicaComparison.check = timed  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder, distributed_fit(job_dir=folder, resume=False):
        ways = {}
        for name, (kind, shape) in CASES.items():
            model = layered(kind)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile("adam", loss, metrics=["accuracy"])
            images = np.random.default_rng(1).random(shape, np.float32)
            ways[f"{name}, epoch"] = partial(epoch, model, images)
            ways[f"{name}, comparison"] = comparison
        figures = alternate(ways, rounds)
    show(figures, "s", digits=4)
    return verdict(figures, *LIMITS)


def epoch(model: keras.Model, images: np.ndarray, _: int) -> float:
    """Return the seconds of an epoch, without what `fit` does before it."""
    times: dict[str, float] = {}

    def take(name: str, *_: Any) -> None:
        times[name] = time.perf_counter()

    clock = keras.callbacks.LambdaCallback(
        on_epoch_begin=partial(take, "begin"), on_epoch_end=partial(take, "end")
    )
    labels = np.arange(len(images)) % 10
    model.fit(images, labels, batch_size=32, epochs=1, callbacks=[clock], verbose=0)
    return times["end"] - times["begin"]


def comparison(_: int) -> float:
    """Return the seconds of the comparison at the end of the last epoch."""
    return seconds[0]


if __name__ == "__main__":
    sys.exit(main())
