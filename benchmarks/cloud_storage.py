"""A checkpoint in a bucket against one upload per file: `python benchmarks/cloud_storage.py`.

A Cloud Storage on this machine, that of the tests, counts TensorFlow's requests. The
checkpoint has 100 MB and is one of many: the oldest goes. The other is the least that puts two
files of these sizes into a bucket. The requests and their ratio are printed, and a ratio above the
limit is exit code 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/trainer_skeleton/runs"), str(ROOT / "trainer_skeleton/base")]
from cloud_storage import CloudStorage  # noqa: E402 - found by the path above

LIMIT = 2.0
VALUES = [(1000, 1000)] * 25
"""Shapes of float32 values of 100 MB together."""


def main() -> int:
    """Count and print; return 1 if the limit does not hold."""
    argparse.ArgumentParser(description="requests for a checkpoint in a bucket").parse_args()
    with tempfile.TemporaryDirectory() as name, CloudStorage(Path(name)) as storage:
        # TensorFlow reads it as it is imported, which is from here on.
        os.environ.update(storage.environment)
        checkpoint = requests_of_a_checkpoint(storage)
        uploads = requests_of_uploads(storage, "job/checkpoints/step-00000040/")
    for name, count in {"checkpoint of 100 MB": checkpoint, "one upload per file": uploads}.items():
        methods = ", ".join(f"{number} {method}" for method, number in count.items())
        print(f"{name:22} {count.total()} requests: {methods}")
    ratio = checkpoint.total() / uploads.total()
    print(f"ratio {ratio:.2f}, limit {LIMIT}")
    return 0 if ratio <= LIMIT else 1


def counted(requests: list[str]) -> Counter[str]:
    """Return how many requests there are of each method."""
    return Counter(request.partition(" ")[0] for request in requests)


def requests_of_a_checkpoint(storage: CloudStorage) -> Counter[str]:
    """Return the requests of the last of four checkpoints, by their methods."""
    import numpy as np

    from distlaunch_trainer.cluster.role import Role
    from distlaunch_trainer.report.report import Report
    from distlaunch_trainer.saving.checkpoints import Checkpoints
    from distlaunch_trainer.training_state import Progress

    checkpoints = Checkpoints("gs://job/checkpoints", Report(Role(), "logs"))
    values = [np.ones(shape, np.float32) for shape in VALUES]
    for step in (10, 20, 30, 40):
        storage.requests.clear()
        progress = Progress(step, 1437, 64, 12, 0, 10_000, 23, "float32")
        checkpoints.save(progress, values)
        checkpoints.wait()
    return counted(storage.requests)


def requests_of_uploads(storage: CloudStorage, place: str) -> Counter[str]:
    """Return the requests, by their methods, that write the files of ``place`` once more."""
    import tensorflow as tf

    storage.requests.clear()
    for name in storage.names(place):
        with tf.io.gfile.GFile(f"gs://job/plain/{name}", "wb") as file:
            file.write(storage.objects[place + name])
    return counted(storage.requests)


if __name__ == "__main__":
    sys.exit(main())
