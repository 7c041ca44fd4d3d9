"""Examples a second with two workers, against others' loops: `python benchmarks/throughput.py`.

A small convolutional network on images like MNIST's, 64 a worker and step, loss and accuracy
reported. distlaunch from memory, by the compiled loss and by a step with tf.GradientTape, and from
TFRecord files that are parsed by batches, as the starter does it, and one by one; the script of
TensorFlow's tutorial on multi-worker training, with tf_keras, on data that end with the epoch and
on repeated data; the fastest loop we could write by hand. Measured is the time from one epoch's end
to the next, the first epoch left out. All alternate, so that a busy machine is busy for all; the
medians and their ratios are printed, and a limit that is not held is exit code 1.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
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
    run_python,
    show,
    steady_rate,
    train,
    verdict,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

WORKERS, BATCH_SIZE = 2, 64
STEPS = 468  # of an epoch of 60,000 images; distlaunch takes the rest of them in a 469th
EPOCHS = 3
SHORT = {"steps": 20, "epochs": 2}
SOURCES = {
    "from memory": "arrays",
    "from TFRecords": "records",
    "from TFRecords, one by one": "single records",
}
TUTORIALS = {
    "tutorial, tf_keras": "finite",
    "tutorial, repeated data": "repeated",
}
BY_TAPE = "from memory, train_step()"
BY_HAND = "by hand"
LIMITS = (
    Limit("from memory", "tutorial, tf_keras", least=3.5),
    Limit("from TFRecords", "from memory", least=0.85),
    Limit("from memory", BY_HAND, least=0.95),
    Limit(BY_TAPE, "from memory", least=0.95),
)


def main() -> int:
    """Measure and print; return 1 if a limit does not hold."""
    parser = options("examples a second with two workers", rounds=5)
    text = "which model of benchmarks/images/model.py (small); the limits are for the small one"
    parser.add_argument("--model", choices=("small", "tutorial"), default="small", help=text)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = {"steps": STEPS, "epochs": EPOCHS} if arguments.rounds else SHORT
        ratios: list[float] = []
        ways = ways_to_train(folder, arguments.model, ratios, **size)
        figures = alternate(ways, arguments.rounds)
    show(figures, "examples/s")
    code = verdict(figures, *LIMITS)
    print(f"summary.json has {statistics.median(ratios):.2f} x what is measured here")
    return code


def ways_to_train(folder: Path, model: str, ratios: list[float], steps: int, epochs: int) -> dict:
    """Return a function for each way, which trains and returns examples a second.

    `ratios` receives by how much `summary.json` differs from what is measured.
    """
    variables = {"MODEL": model, "DATA": str(folder)}
    run_python([str(IMAGES / "write.py"), str(folder)])
    project = make_project(folder / "images", IMAGES)
    size = [f"--epochs={epochs}", f"--batch-size={BATCH_SIZE}"]
    if steps != STEPS:
        size.append(f"--steps-per-epoch={steps}")

    def ours(source: str, number: int, **step: str) -> float:
        name = "-".join([source, *step, str(number)])
        job = train(project, name, size, SOURCE=source, **variables, **step)
        rate = examples_per_second(job)
        summary = json.loads((job / "summary.json").read_text(encoding="utf-8"))
        ratios.append(summary["examples_per_second"] / rate)
        return rate

    def theirs(words: list[str], _: int) -> float:
        words = [str(IMAGES / words[0]), str(steps), str(epochs), *words[1:]]
        ends = run_cluster(words, folder, variables | {"TF_USE_LEGACY_KERAS": "1"})
        return steady_rate(ends, steps * BATCH_SIZE * WORKERS)

    return {
        **{name: partial(ours, source) for name, source in SOURCES.items()},
        BY_TAPE: partial(ours, "arrays", STEP="tape"),
        **{name: partial(theirs, ["tutorial.py", data]) for name, data in TUTORIALS.items()},
        BY_HAND: partial(theirs, ["by_hand.py"]),
    }


def run_cluster(words: list[str], folder: Path, variables: Mapping[str, str]) -> list[float]:
    """Run a script as each worker of a cluster; return when the first one's epochs ended.

    The tutorial's script takes no notice of CORES, and runs where and with as many threads as it
    likes. Each process has a session of its own, as distlaunch's tasks have, for Linux shares out a
    busy machine by sessions.
    """
    cluster = {"worker": [f"localhost:{port}" for port in free_ports(WORKERS)]}
    cores = sorted(os.sched_getaffinity(0))
    processes = []
    for index in range(WORKERS):
        environment = variables | {
            "CUDA_VISIBLE_DEVICES": "-1",
            "TF_CONFIG": json.dumps(
                {"cluster": cluster, "task": {"type": "worker", "index": index}}
            ),
            "CORES": ",".join(map(str, cores[index::WORKERS])),
        }
        with (folder / f"worker-{index}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *words, str(folder / f"ends-{index}.json")],
                env=os.environ | environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        processes.append(process)
    try:
        codes = [process.wait() for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(codes):
        raise SystemExit(f"{words[0]}:\n{(folder / 'worker-0.log').read_text(errors='replace')}")
    return json.loads((folder / "ends-0.json").read_text(encoding="utf-8"))


def free_ports(count: int) -> list[int]:
    """Return free ports."""
    found = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in found]
    for each in found:
        each.close()
    return ports


if __name__ == "__main__":
    sys.exit(main())
