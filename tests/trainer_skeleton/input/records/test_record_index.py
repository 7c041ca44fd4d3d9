from __future__ import annotations

import gzip
import io
import json
import mmap
import os
import struct
import threading
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from unittest.mock import Mock

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distlaunch_trainer.errors import DataError, StorageError
from distlaunch_trainer.input.records import record_index
from distlaunch_trainer.input.records.record_index import (
    EVERY,
    index_files,
    record_offsets,
    scan,
)

from ...conftest import write_records  # noqa: TID252

ALL = ["part-0", "part-1", "part-2"]


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

    def recorded(path: str, size: int, changed: int) -> record_index.FileIndex:
        names.append(Path(path).name)
        return scan(path, size, changed)

    monkeypatch.setattr(record_index, "scan", recorded)
    return names


@pytest.fixture
def records_of(data, cluster, tmp_path, scanned):
    """Index files of the folder; return their records and the names of those scanned."""

    def look(pattern: str = "part-*", job_dir: Path = tmp_path) -> tuple[list[int], list[str]]:
        scanned.clear()
        files = index_files(f"{data}/{pattern}", cluster, str(job_dir)).files
        return [file.records for file in files], sorted(scanned)

    return look


def write(path: Path, records: list[bytes], compression: str = "") -> bytes:
    write_records(path, records, compression)
    return path.read_bytes()


def noise(size: int, seed: int) -> bytes:
    return np.random.default_rng(seed).bytes(size)


def scan_now(path: Path) -> record_index.FileIndex:
    return scan(str(path), path.stat().st_size, 0)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 300), max_size=200), st.sampled_from(["", "GZIP"]))
def test_counts_and_offsets_are_those_of_the_file(sizes, compression):
    records = [noise(size, seed) for seed, size in enumerate(sizes)]
    with TemporaryDirectory() as folder:
        path = Path(folder, "data")
        content = write(path, records, compression)
        scanned = scan_now(path)
    unpacked = gzip.decompress(content) if compression and content else content
    assert scanned.records == len(records)
    # TensorFlow writes no GZIP header before the first record: an empty file is plain.
    assert scanned.unpacked == (len(unpacked) if compression else 0)
    assert len(scanned.offsets) == len(range(0, len(records), EVERY))
    for offset, record in zip(scanned.offsets, records[::EVERY], strict=True):
        assert struct.unpack_from("<Q", unpacked, offset) == (len(record),)
        assert unpacked[offset + 12 :].startswith(record)


def test_cut_off_and_damaged_packed_files_are_refused(tmp_path):
    path = tmp_path / "data"
    content = write(path, [noise(50, 1)] * 3, "GZIP")
    middle = len(content) // 2
    damaged = content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]
    for bad in (*(content[:cut] for cut in range(1, len(content))), damaged):
        path.write_bytes(bad)
        with pytest.raises(DataError, match=str(path)):
            scan_now(path)


def test_an_index_is_reused_while_files_are_unchanged(data, records_of):
    assert records_of() == ([3, 0, 130], ALL)
    assert records_of("*") == ([3, 0, 130], [])  # the index itself is no data
    write(data / "part-0", [b"more"] * 4)
    before = (data / "part-2").stat()
    os.utime(data / "part-2", ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000_000))
    assert records_of() == ([4, 0, 130], ["part-0", "part-2"])


def test_files_are_scanned_several_at_once(data, records_of, monkeypatch):
    """A scan does not end before another one has begun."""
    together = threading.Barrier(3)

    def scan_together(*file):
        together.wait(timeout=60)
        return scan(*file)

    monkeypatch.setattr(record_index, "scan", scan_together)
    assert records_of()[0] == [3, 0, 130]


def test_one_index_serves_the_patterns_of_one_folder(data, records_of):
    records_of("part-[01]")
    records_of("part-2")
    (data / "part-1").unlink()
    assert records_of("part-0") == ([3], [])
    assert records_of("part-2") == ([130], [])
    write(data / "part-3", [b"new"])
    records_of("part-3")
    entries = json.loads((data / ".records-index.json").read_text())["files"]
    assert sorted(Path(entry["path"]).name for entry in entries) == [*ALL, "part-3"]


def test_an_old_index_beside_the_data_does_not_replace_a_newer_one(
    data, tmp_path, records_of, monkeypatch
):
    job = tmp_path / "job"
    job.mkdir()
    records_of(job_dir=job)
    write(data / "part-0", [b"more"] * 4)
    write_whole = record_index.write_whole

    def write_to_job(path: str, content: bytes) -> None:
        if not path.startswith(str(job)):
            raise StorageError("read-only")
        write_whole(path, content)

    monkeypatch.setattr(record_index, "write_whole", write_to_job)
    records_of(job_dir=job)
    assert [path.suffix for path in job.iterdir()] == [".json"]
    assert records_of(job_dir=job) == ([4, 0, 130], [])
    assert records_of(job_dir=tmp_path / "read-only") == ([4, 0, 130], ["part-0"])


DAMAGES = [
    lambda text: text[: len(text) // 2],
    lambda text: text.replace('"records": 130', '"records": 999'),
    lambda text: text.replace('"offsets": "AAAA', '"offsets": "CAAA'),
    lambda text: text.replace('"size"', '"bytes"'),
    lambda text: "\udcff" + text,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_rebuilt(data, records_of, damage):
    records_of()
    cache = data / ".records-index.json"
    text = cache.read_text()
    cache.write_text(damage(text), errors="surrogateescape")
    assert records_of() == ([3, 0, 130], ALL)
    assert cache.read_text() == text


def test_a_pattern_with_folders_is_indexed_in_the_job_folder(data, cluster, tmp_path):
    job = tmp_path / "job"
    job.mkdir()
    index_files(f"{tmp_path}/da*/part-*", cluster, str(job))
    (cache,) = job.iterdir()
    assert len(json.loads(cache.read_text())["files"]) == 3
    assert not (data / ".records-index.json").exists()


def test_no_file_that_matches_names_the_pattern(data, records_of):
    with pytest.raises(DataError) as refused:
        records_of("nothing-*")
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
def test_only_regular_files_are_opened(data, records_of, make, kind):
    make(data / "part-3")
    with pytest.raises(DataError) as refused:
        records_of()
    assert str(refused.value).startswith(f"{data}/part-3 is {kind}, and data are read from regular")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    for path in (f"{tmp_path}/none", "ram://bucket/none"):
        with pytest.raises(StorageError, match=f"^cannot read the data {path}: "):
            scan(path, 0, 0)


def test_a_bucket_without_access_has_the_remedy(monkeypatch):
    refused = tf.errors.PermissionDeniedError(None, None, "HTTP response code 403")
    monkeypatch.setattr(tf.io.gfile, "glob", Mock(side_effect=refused))
    with pytest.raises(StorageError, match=r"^cannot list the data gs://a/\*: .* log in with 'gcl"):
        index_files("gs://a/*", None, "")


def framed(data: bytes) -> bytes:
    """A record; nothing looks at the checksums here."""
    return struct.pack("<Q", len(data)) + b"size" + data + b"data"


def joined(records: list[bytes]) -> bytes:
    return b"".join(framed(data) for data in records)


def scan_plainly(content: bytes) -> tuple[int, list[int]]:
    """Find the records one by one."""
    at, starts = 0, []
    while at + 8 <= len(content):
        starts.append(at)
        at += int.from_bytes(content[at : at + 8], "little") + 16
    if at != len(content):
        raise DataError(
            f"data is damaged or cut off: record {max(len(starts) - 1, 0)} should end at byte "
            f"{max(at, len(content) + 1)}, the file ends at {len(content)}; write the file again"
        )
    return len(starts), starts[::EVERY]


def scan_content(content: bytes, reads: list[int]) -> tuple[int, list[int]]:
    """Scan ``content``, of which so many bytes at a time can be read."""
    stream, sizes = io.BytesIO(content), cycle(reads)
    count, offsets, _ = record_offsets("data", iter(lambda: stream.read(next(sizes)), b""))
    return count, offsets.tolist()


def scan_mapped(content: bytes) -> tuple[int, list[int]]:
    """Scan a file with the content."""
    with TemporaryFile() as file:
        file.write(content)
        file.flush()
        mapped = [mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)] if content else []
        count, offsets, _ = record_offsets("data", mapped)
    return count, offsets.tolist()


def end_of(way, *arguments):
    try:
        return way(*arguments)
    except DataError as error:
        return str(error)


def check_end(content: bytes, reads: list[int]):
    """Check that a scan has the result of a plain one, and return it."""
    end = end_of(scan_content, content, reads)
    assert end == end_of(scan_mapped, content) == end_of(scan_plainly, content)
    return end


def numbers(count: int, kind: str) -> bytes:
    return np.arange(250, 250 + count).astype(kind).tobytes()


def short_lengths() -> st.SearchStrategy[int]:
    return st.integers(0, 40) | st.integers(0, 700) | st.sampled_from([255, 256, 3760])


def plain_records() -> st.SearchStrategy[bytes]:
    return (
        st.builds(noise, short_lengths(), st.integers(0, 9))
        | st.builds(bytes, short_lengths())
        | st.builds(numbers, st.integers(0, 60), st.sampled_from(["<i8", "<i4", "<i2"]))
        | st.sampled_from([bytes(65_535), bytes(65_536), framed(b"")[:-4], framed(b"")[:12]])
    )


records = st.lists(
    st.recursive(plain_records(), lambda inner: st.lists(inner, max_size=6).map(joined)),
    max_size=12,
)
files = st.builds(lambda some, times: joined(some * times), records, st.integers(1, 20))
reads = st.builds(
    lambda some, sizes: [*sizes, some, 1 << 22],
    st.integers(1, 20),
    st.lists(st.integers(500, 20_000), max_size=3),
)


@settings(max_examples=30)
@given(files, reads)
@example(joined([bytes(100)] * 50), [1 << 22])
@example(joined([joined([b"in"] * 5)] * 50), [1 << 22])
def test_a_scan_finds_the_records_that_a_plain_one_finds(content, reads):
    assert not isinstance(check_end(content, reads), str)


@settings(max_examples=30)
@given(files.filter(len), reads, st.data())
def test_damaged_files_have_the_same_end(content, reads, data):
    """Cut off, shifted, with a byte of it changed, and with a byte of a length changed."""
    at = data.draw(st.integers(0, len(content) - 1))
    check_end(content[:at], reads)
    check_end(content[at:] + content[:at], reads)
    check_end(with_changed_byte(content, at), reads)
    starts, at = [], 0
    while at < len(content):
        starts.append(at)
        at += struct.unpack_from("<Q", content, at)[0] + 16
    at = data.draw(st.sampled_from(starts)) + data.draw(st.integers(0, 7))
    check_end(with_changed_byte(content, at), reads)


@pytest.mark.parametrize("byte", range(8))
def test_a_damaged_length_names_file_and_record(tmp_path, byte):
    content = write(tmp_path / "data", [noise(50, seed) for seed in range(20)])
    damaged = with_changed_byte(content, 17 * (50 + 16) + byte)
    for path in (f"{tmp_path}/data", "ram://bucket/damaged"):
        with tf.io.gfile.GFile(path, "wb") as file:
            file.write(damaged)
        with pytest.raises(DataError) as refused:
            scan(path, len(damaged), 0)
        assert str(refused.value).startswith(f"{path} is damaged or cut off: record 1")


def with_changed_byte(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0x41]) + content[at + 1 :]
