from __future__ import annotations

import gzip

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
    assert count(paths) == Counted(len(paths), sum(map(len, contents)))


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


def test_what_cannot_be_counted(tmp_path):
    packed, text, folder = tmp_path / "packed", tmp_path / "text", tmp_path / "folder"
    packed.write_bytes(gzip.compress(tfrecords([b"x"])))
    text.write_text("no records at all, but text\n")
    folder.mkdir()
    assert count([packed]) == Counted(1, None)
    found = count([text, folder, tmp_path / "gone"])
    assert found.records is None
    assert [path for path, _ in found.damaged] == [text, folder, tmp_path / "gone"]
    assert "holds no TFRecords" in found.damaged[0][1]
    assert "is a directory" in found.damaged[1][1]
    assert "no such file" in found.damaged[2][1]
