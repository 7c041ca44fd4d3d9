from __future__ import annotations

import gzip
import json
import os
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.distributed import index
from trainer.distributed.cluster import Role
from trainer.distributed.errors import DataError, StorageError
from trainer.distributed.index import EVERY, index_files, scan

compressions = st.sampled_from(["", "GZIP"])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for number, records in enumerate((3, 0, 130)):
        write(folder / f"part-{number}", [b"x" * n for n in range(records)])
    return folder


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are scanned, as that happens."""
    names = []

    def noted(path: str, size: int, changed: int) -> index.FileIndex:
        names.append(Path(path).name)
        return scan(path, size, changed)

    monkeypatch.setattr(index, "scan", noted)
    return names


def write(path: Path, records: list[bytes], compression: str = "") -> bytes:
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(record)
    return path.read_bytes()


def noise(size: int, seed: int) -> bytes:
    return np.random.default_rng(seed).bytes(size)


def scan_now(path: Path) -> index.FileIndex:
    return scan(str(path), path.stat().st_size, 0)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 300), max_size=200), compressions)
def test_counts_and_offsets_are_those_of_the_file(sizes, compression):
    records = [noise(size, seed) for seed, size in enumerate(sizes)]
    with TemporaryDirectory() as folder:
        path = Path(folder, "data")
        content = write(path, records, compression)
        scanned = scan_now(path)
    unpacked = gzip.decompress(content) if compression and content else content
    assert scanned.records == len(records)
    # TensorFlow writes no GZIP header before the first record: an empty file is plain.
    assert scanned.compression == (compression if content else "")
    assert len(scanned.offsets) == len(range(0, len(records), EVERY))
    for offset, record in zip(scanned.offsets, records[::EVERY], strict=True):
        assert struct.unpack_from("<Q", unpacked, offset) == (len(record),)
        assert unpacked[offset + 12 :].startswith(record)


def test_an_entry_leads_to_its_record(tmp_path):
    write(tmp_path / "data", [bytes([n]) for n in range(200)])
    plain = scan_now(tmp_path / "data")
    assert [plain.entry(n) for n in (0, 15, 16, 199)] == [(0, 0), (0, 15), (16 * 17, 0), (3264, 7)]
    write(tmp_path / "data", [b"a"] * 200, "GZIP")
    assert scan_now(tmp_path / "data").entry(199) == (0, 199)


def test_cut_off_and_damaged_packed_files_are_refused(tmp_path):
    path = tmp_path / "data"
    content = write(path, [noise(50, 1)] * 3, "GZIP")
    middle = len(content) // 2
    damaged = content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]
    for bad in (*(content[:cut] for cut in range(1, len(content))), damaged):
        path.write_bytes(bad)
        with pytest.raises(DataError, match=str(path)):
            scan_now(path)


def test_an_index_is_reused(data, team, tmp_path, scanned):
    first = index_files(f"{data}/part-*", team, str(tmp_path))
    files = [(Path(file.path).name, file.records) for file in first.files]
    assert files == [("part-0", 3), ("part-1", 0), ("part-2", 130)]
    assert sorted(scanned) == ["part-0", "part-1", "part-2"]
    assert first.bytes_read == sum(path.stat().st_size for path in data.glob("part-*"))
    scanned.clear()
    second = index_files(f"{data}/*", team, str(tmp_path))  # the index itself is no data
    assert second.files == first.files
    assert second.bytes_read == 0
    assert scanned == []


def test_one_index_serves_the_patterns_of_one_folder(data, team, tmp_path, scanned):
    patterns = (f"{data}/part-[01]", f"{data}/part-2")
    for pattern in patterns:
        index_files(pattern, team, str(tmp_path))
    (data / "part-1").unlink()
    scanned.clear()
    index_files(f"{data}/part-0", team, str(tmp_path))
    index_files(patterns[1], team, str(tmp_path))
    assert scanned == []
    write(data / "part-3", [b"new"])
    index_files(f"{data}/part-3", team, str(tmp_path))
    kept = json.loads((data / ".records-index.json").read_text())["files"]
    assert sorted(Path(entry["path"]).name for entry in kept) == ["part-0", "part-2", "part-3"]


def test_an_old_index_beside_the_data_does_not_replace_a_newer_one(
    data, team, tmp_path, scanned, monkeypatch
):
    job = tmp_path / "job"
    job.mkdir()
    index_files(f"{data}/part-*", team, str(job))
    write(data / "part-0", [b"more"] * 4)
    write_whole = index.write_whole

    def refusing(path: str, content: bytes) -> None:
        if path.startswith(str(data)):
            raise StorageError("read-only")
        write_whole(path, content)

    monkeypatch.setattr(index, "write_whole", refusing)
    index_files(f"{data}/part-*", team, str(job))
    assert [path.suffix for path in job.iterdir()] == [".json"]
    scanned.clear()
    files = index_files(f"{data}/part-*", team, str(job)).files
    assert scanned == []
    assert [file.records for file in files] == [4, 0, 130]
    monkeypatch.setattr(index, "write_whole", fail_to_write)
    files = index_files(f"{data}/part-*", team, str(tmp_path / "other")).files
    assert [file.records for file in files] == [4, 0, 130]


def fail_to_write(path: str, content: bytes) -> None:
    raise StorageError("read-only")


def test_a_file_of_another_size_or_time_is_scanned_again(data, team, tmp_path, scanned):
    index_files(f"{data}/part-*", team, str(tmp_path))
    scanned.clear()
    write(data / "part-0", [b"more"] * 4)
    before = (data / "part-2").stat()
    os.utime(data / "part-2", ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000_000))
    files = index_files(f"{data}/part-*", team, str(tmp_path)).files
    assert sorted(scanned) == ["part-0", "part-2"]
    assert [file.records for file in files] == [4, 0, 130]


DAMAGES = [
    lambda text: "",
    lambda text: text[: len(text) // 2],
    lambda text: "[]",
    lambda text: '{"files": ["a"]}',
    lambda text: text.replace('"records": 130', '"records": 999'),
    lambda text: text.replace('"offsets": "AAAA', '"offsets": "CAAA'),
    lambda text: text.replace('"size"', '"bytes"'),
    lambda text: "\udcff" + text,
]


def test_a_damaged_index_is_rebuilt(data, team, tmp_path, scanned):
    good = index_files(f"{data}/part-*", team, str(tmp_path)).files
    cache = data / ".records-index.json"
    text = cache.read_text()
    for damage in DAMAGES:
        cache.write_text(damage(text), errors="surrogateescape")
        scanned.clear()
        assert index_files(f"{data}/part-*", team, str(tmp_path)).files == good
        assert sorted(scanned) == ["part-0", "part-1", "part-2"]
        assert cache.read_text() == text


def test_a_pattern_with_folders_is_indexed_in_the_job_folder(data, team, tmp_path):
    job = tmp_path / "job"
    job.mkdir()
    index_files(f"{tmp_path}/da*/part-*", team, str(job))
    (kept,) = job.iterdir()
    assert len(json.loads(kept.read_text())["files"]) == 3
    assert not (data / ".records-index.json").exists()


def test_no_file_that_matches_names_the_pattern(data, team, tmp_path):
    with pytest.raises(DataError) as refused:
        index_files(f"{data}/nothing-*", team, str(tmp_path))
    assert str(refused.value) == f"no file matches {data}/nothing-*: see trainer/data.py"


@pytest.mark.timeout(20)  # opening the pipe would block
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (Path.mkdir, "a folder"),
        (os.mkfifo, "a named pipe"),
        (lambda path: path.symlink_to("/dev/zero"), "a device"),
    ],
)
def test_only_regular_files_are_opened(data, team, tmp_path, make, kind):
    make(data / "part-3")
    with pytest.raises(DataError) as refused:
        index_files(f"{data}/part-*", team, str(tmp_path))
    assert str(refused.value) == (
        f"{data}/part-3 is {kind}, and data are read from regular files: "
        f"remove it, or change the pattern in trainer/data.py"
    )


class OneOfTeam:
    """A task of a team of threads."""

    def __init__(self, rank: int, barrier: threading.Barrier, given: dict[int, np.ndarray]) -> None:
        peers = tuple(f"worker:{number}" for number in range(barrier.parties))
        self.role = Role(peers[rank], peers)
        self._barrier, self._given = barrier, given

    def sum(self, value: np.ndarray) -> np.ndarray:
        self._barrier.wait(60)
        self._given[self.role.rank] = value
        self._barrier.wait(60)
        return sum(self._given.values())

    def all_equal(self, value: int) -> bool:
        return bool((self.sum(np.array(value)) == value * self._barrier.parties).all())


def test_tasks_scan_each_file_once_and_know_all(data, tmp_path, scanned):
    tasks = 3
    write(data / "part-3", [b"packed"] * 200, "GZIP")
    barrier, given = threading.Barrier(tasks), {}
    with ThreadPoolExecutor(tasks) as threads:
        indexes = list(
            threads.map(
                lambda rank: index_files(
                    f"{data}/part-*", OneOfTeam(rank, barrier, given), str(tmp_path)
                ),
                range(tasks),
            )
        )
    assert sorted(scanned) == ["part-0", "part-1", "part-2", "part-3"]
    alone = [scan(*file) for file in index._matching(f"{data}/part-*")]
    assert [one.files for one in indexes] == [alone] * tasks
    sizes = [path.stat().st_size for path in data.glob("part-*")]
    assert sum(one.bytes_read for one in indexes) == sum(sizes)
    assert max(one.bytes_read for one in indexes) < sum(sizes)


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_a_remote_file_is_scanned_alike(tmp_path, compression):
    content = write(tmp_path / "data", [noise(n, n) for n in range(300)], compression)
    remote = f"ram://bucket/{compression or 'plain'}"
    with tf.io.gfile.GFile(remote, "wb") as file:
        file.write(content)
    here, there = scan_now(tmp_path / "data"), scan(remote, len(content), 0)
    assert (there.records, there.compression) == (300, compression)
    assert there.offsets == here.offsets


def test_files_that_cannot_be_read_are_named(tmp_path):
    for path in (f"{tmp_path}/none", str(tmp_path), "ram://bucket/none"):
        with pytest.raises(DataError) as refused:
            scan(path, 0, 0)
        assert str(refused.value).startswith(f"{path} cannot be read: ")
