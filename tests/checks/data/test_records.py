from __future__ import annotations

import gzip
import os
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.checks.data.records import Counted, count

from .conftest import tfrecords

FILES = st.lists(st.lists(st.binary(max_size=40), max_size=6), max_size=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("records")


@given(FILES)
def test_records_are_counted_in_all_files(folder, contents):
    paths = [folder / f"{number}.tfrecord" for number in range(len(contents))]
    for path, records in zip(paths, contents, strict=True):
        path.write_bytes(tfrecords(records))
    empty = tuple(path for path in paths if not path.stat().st_size)
    assert count(paths) == Counted(len(paths), sum(map(len, contents)), empty=empty)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=6), st.integers(1))
def test_a_file_that_is_cut_off_is_no_other(folder, records, cut):
    path, whole = folder / "cut.tfrecord", tfrecords(records)
    ends = {len(tfrecords(records[:number])) for number in range(len(records))}
    size = cut % len(whole)
    path.write_bytes(whole[:size])
    assert bool(count([path]).damaged) == (size not in ends)


def test_as_many_are_counted_as_are_asked_for(tmp_path):
    path = tmp_path / "many.tfrecord"
    path.write_bytes(tfrecords([b""]) * 30_000)
    assert count([path], most=30_000) == Counted(1, 30_000)
    some = count([path, path], most=10_000)
    assert some == Counted(2, 10_000, is_all=False)
    assert count([path], until=time.monotonic() - 1) == Counted(1, 0, is_all=False)


def test_what_cannot_be_counted(tmp_path):
    packed, text, folder = tmp_path / "packed", tmp_path / "text", tmp_path / "folder"
    packed.write_bytes(gzip.compress(tfrecords([b"x"])))
    text.write_text("no records at all, but text\n")
    folder.mkdir()
    assert count([packed]) == Counted(1, None)
    found = count([text, folder, tmp_path / "gone"])
    assert found.records is None
    assert [each.path for each in found.damaged] == [text, folder, tmp_path / "gone"]
    assert "holds no TFRecords" in found.damaged[0].what
    assert "is a directory" in found.damaged[1].what
    assert "no such file" in found.damaged[2].what
    assert [each.is_sure for each in found.damaged] == [True, False, False]


def test_short_and_long_records_are_counted_alike(tmp_path):
    sizes = [0] * 999 + ([100] * 499 + [5_000, 70_000, 4_080]) * 4
    path = tmp_path / "mixed.tfrecord"
    path.write_bytes(tfrecords(bytes(size) for size in sizes))
    assert count([path]) == Counted(1, len(sizes))


def test_a_length_that_is_damaged_is_found_wherever_it_is(tmp_path):
    path, content = tmp_path / "damaged.tfrecord", bytearray(tfrecords([b"x" * 100] * 1_000))
    content[116 * 700 + 9] ^= 1
    path.write_bytes(content)
    [damage] = count([path]).damaged
    assert damage.is_sure
    assert "record 700, at byte 81,200" in damage.what


def test_a_file_is_told_where_it_is_cut_off_as_the_trainer_tells_it(tmp_path):
    path, whole = tmp_path / "cut.tfrecord", tfrecords([b"x" * 100] * 20)
    path.write_bytes(whole[:2000])
    [damage] = count([path]).damaged
    assert damage.what == (
        "it is cut off: record 17 should end at byte 2,088, and the file ends at 2,000"
    )
    path.write_bytes(whole[: 116 * 17 + 5])
    [damage] = count([path]).damaged
    assert damage.what == "it is cut off: it ends at byte 1,977, in the header of record 17"


def test_a_file_that_is_cut_off_as_it_is_read_ends_nothing(tmp_path):
    path, size = tmp_path / "shrinking.tfrecord", 116 * 100_000
    path.write_bytes(tfrecords([b"x" * 100]) * 100_000)
    is_over = threading.Event()

    def cut_and_write() -> None:
        while not is_over.is_set():
            os.truncate(path, 0)
            os.truncate(path, size)

    writer = threading.Thread(target=cut_and_write)
    writer.start()
    try:
        found = [count([path]) for _ in range(20)]
    finally:
        is_over.set()
        writer.join()
    assert all(each.files == 1 for each in found)
