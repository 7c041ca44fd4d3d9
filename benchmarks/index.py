"""The index of a TFRecord file against reading its bytes once: `python benchmarks/index.py`.

A file of 10,000,000 records with 50 to 150 bytes of data is indexed, and read in blocks of 4 MiB:
by TensorFlow's own class for files, as the rest of a trainer reads, and by the system into one
buffer, which only copies memory, as all find the file in the page cache. They alternate, so that a
busy machine is busy for all; the medians and their ratios are printed. So is the memory that the
index takes at its peak beside what it returns, for the file and for one of a tenth of the records.
A ratio to TensorFlow's speed below the limit, or one of the memory above it, is exit code 1.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import tracemalloc
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
from common import Limit, alternate, options, show, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "trainer_skeleton/base"))
from distlaunch_trainer.record_index import scan
from distlaunch_trainer.tfrecord_scanner import masked_crc

if TYPE_CHECKING:
    from collections.abc import Callable

SPEED = Limit("index", "read by TensorFlow", least=0.5)
MEMORY = Limit("all records", "a tenth", most=1.5)
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
        paths = {"a tenth": Path(name) / "tenth", "all records": Path(name) / "all"}
        write(paths["a tenth"], chosen.records // 10)
        write(paths["all records"], chosen.records)
        ways = {"read": read, "read by TensorFlow": read_by_tensorflow, "index": index}
        speeds = {way: partial(speed, ways[way], paths["all records"]) for way in ways}
        figures = alternate(speeds, chosen.rounds)
        memory = {name: [peak(path)] for name, path in paths.items()}
    show(figures, "MB/s")
    show(memory, "MiB", digits=1)
    by_system = zip(figures["index"], figures["read"], strict=True)
    print(f"index / read: {statistics.median(a / b for a, b in by_system):.2f}, without a limit")
    return max(verdict(figures, SPEED), verdict(memory, MEMORY))


def write(path: Path, records: int) -> None:
    """Write records of noise; the checksums of their data are noise too, as nothing reads them."""
    noise = np.random.default_rng(1)
    with path.open("wb") as file:
        for start in range(0, records, AT_ONCE):
            count = min(AT_ONCE, records - start)
            lengths = noise.integers(SHORTEST, LONGEST + 1, count, np.int64)
            ends = np.cumsum(lengths + 16)
            content = np.frombuffer(bytearray(noise.bytes(int(ends[-1]))), np.uint8)
            content[(ends - lengths - 16)[:, np.newaxis] + np.arange(12)] = headers(lengths)
            file.write(content)


def headers(lengths: np.ndarray) -> np.ndarray:
    """Return the bytes of each length and of its checksum."""
    length_bytes = lengths.astype("<u8").view(np.uint8).reshape(-1, 8)
    crcs = masked_crc(length_bytes.T.astype(np.int64)).astype("<u4")
    return np.concatenate([length_bytes, crcs.view(np.uint8).reshape(-1, 4)], axis=1)


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


def index(path: Path) -> int:
    """Index a file; return the bytes that its index takes."""
    offsets = scan(str(path), path.stat().st_size, 0).offsets
    return len(offsets) * offsets.itemsize


def peak(path: Path) -> float:
    """Return how many MiB the index of a file takes at its peak beside what it returns.

    The memory of two blocks of the file is not counted here; it is always 8 MiB.
    """
    tracemalloc.start()
    returned = index(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (most - returned) / (1 << 20)


if __name__ == "__main__":
    sys.exit(main())
