"""The index of a TFRecord file against reading its bytes once: `python benchmarks/index.py`.

A file of 10,000,000 records with 50 to 150 bytes of data is indexed, and read in blocks of 4 MiB:
by TensorFlow's own class for files, as the rest of a trainer reads, and by the system into one
buffer, which only copies memory, as all find the file in the page cache. They alternate, so that a
busy machine is busy for all; the medians and their ratios are printed. A ratio to TensorFlow's
speed below the limit is exit code 1.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
from common import Limit, alternate, options, show, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "trainer_skeleton/base"))
from distlaunch_trainer.input.records.record_index import scan

if TYPE_CHECKING:
    from collections.abc import Callable

SPEED = Limit("index", "read by TensorFlow", least=0.05)
BLOCK = 4 << 20
SHORTEST, LONGEST = 50, 150
AT_ONCE = 100_000


def main() -> int:
    """Measure and print; return 1 if a limit does not hold."""
    parser = options("speed of the index of a file against reading it once", rounds=9)
    text = "records of the file (10,000,000)"
    parser.add_argument("--records", type=int, default=10_000_000, help=text)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "records"
        write(path, chosen.records)
        ways = {"read": read, "read by TensorFlow": read_by_tensorflow, "index": index}
        speeds = {way: partial(speed, ways[way], path) for way in ways}
        figures = alternate(speeds, chosen.rounds)
    show(figures, "MB/s")
    by_system = zip(figures["index"], figures["read"], strict=True)
    print(f"index / read: {statistics.median(a / b for a, b in by_system):.2f}, without a limit")
    return verdict(figures, SPEED)


def write(path: Path, records: int) -> None:
    """Write records of noise; their checksums are noise too, as nothing reads them."""
    noise = np.random.default_rng(1)
    with path.open("wb") as file:
        for start in range(0, records, AT_ONCE):
            count = min(AT_ONCE, records - start)
            lengths = noise.integers(SHORTEST, LONGEST + 1, count, np.int64)
            ends = np.cumsum(lengths + 16)
            content = np.frombuffer(bytearray(noise.bytes(int(ends[-1]))), np.uint8)
            starts = (ends - lengths - 16)[:, np.newaxis]
            content[starts + np.arange(8)] = lengths.astype("<u8").view(np.uint8).reshape(-1, 8)
            file.write(content)


def speed(way: Callable[[Path], object], path: Path, _: int) -> float:
    """Return how many MB a second a way takes in."""
    began = time.perf_counter()
    way(path)
    return path.stat().st_size / (time.perf_counter() - began) / 1e6


def read(path: Path) -> None:
    """Read a file once."""
    buffer = bytearray(BLOCK)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def read_by_tensorflow(path: Path) -> None:
    """Read a file once as the other parts of a trainer would, a bucket's too."""
    with tf.io.gfile.GFile(str(path), "rb") as file:
        while file.read(BLOCK):
            pass


def index(path: Path) -> None:
    """Index a file."""
    scan(str(path), path.stat().st_size, 0)


if __name__ == "__main__":
    sys.exit(main())
