from __future__ import annotations

import json
import os

import pytest

from distlaunch.checks.data import record


def unknown(project):
    with pytest.raises(record.DataUnknown) as reason:
        record.load(project.folder, project.folder / "trainer/data.py")
    return str(reason.value)


def test_the_record_is_valid_while_data_py_and_the_files_are_unchanged(whole):
    file = whole.folder / "data/train-00000-of-00005.tfrecord"
    modified = file.stat().st_mtime_ns
    changed = "files of data/train-*.tfrecord have changed since the last local run"
    os.utime(file, ns=(0, modified + 1))
    assert unknown(whole) == changed
    os.utime(file, ns=(0, modified))
    loaded = record.load(whole.folder, whole.folder / "trainer/data.py")
    assert loaded["training"].examples == 1437
    assert loaded["validation"].pattern == "data/validation-*.tfrecord"
    whole.write("data/train-00005-of-00005.tfrecord", "")
    assert unknown(whole) == changed
    whole.write("trainer/model.py", "")
    assert unknown(whole) == changed
    whole.write("trainer/config.py", "")
    changed = "trainer/data.py or a module beside it has changed since the last local run"
    assert unknown(whole) == changed


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"source": 3, "sha256": "", "training": []}'])
def test_a_broken_record_is_unknown_data(whole, content):
    whole.write(record.FILE_NAME, content)
    assert unknown(whole) == ".distlaunch/data.json cannot be read"
    (whole.folder / record.FILE_NAME).unlink()
    assert unknown(whole) == "not recorded by a local run yet"


def test_a_run_of_another_program_keeps_the_record(whole):
    before = (whole.folder / record.FILE_NAME).read_text()
    source = whole.folder / "trainer/data.py"
    record.save(whole.folder, source, record.hash_source(source), {"steps": 3})
    record.save(whole.folder, whole.folder / "data.py", None, {"data": {"training": None}})
    assert (whole.folder / record.FILE_NAME).read_text() == before
    assert json.loads(before).keys() == {"source", "sha256", "training", "validation"}
