from __future__ import annotations

import json
import os

import pytest

from distlaunch.checks.data import record


def unknown(project):
    with pytest.raises(record.DataUnknown) as reason:
        record.load(project.folder, project.folder / "trainer/data.py")
    return str(reason.value)


def test_the_record_is_valid_while_data_py_and_the_files_are_unchanged(project):
    file = project.folder / "data/train-00000-of-00005.tfrecord"
    kept = file.stat()
    loaded = record.load(project.folder, project.folder / "trainer/data.py")
    assert loaded.training.examples == 1437
    assert loaded.validation.pattern == "data/validation-*.tfrecord"
    changed = "files of data/train-*.tfrecord have changed since the last local run"
    os.utime(file, ns=(0, kept.st_mtime_ns + 1))
    assert unknown(project) == changed
    os.utime(file, ns=(0, kept.st_mtime_ns))
    assert record.load(project.folder, project.folder / "trainer/data.py") == loaded
    project.write("data/train-00005-of-00005.tfrecord", "")
    assert unknown(project) == changed
    file.unlink()
    assert unknown(project) == changed
    project.write("trainer/model.py", "")
    assert unknown(project) == changed
    project.write("trainer/config.py", "")
    changed = "trainer/data.py or a module beside it has changed since the last local run"
    assert unknown(project) == changed


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"source": 3, "sha256": "", "training": []}'])
def test_a_broken_record_is_unknown_data(project, content):
    project.write(record.FILE_NAME, content)
    assert unknown(project) == ".distlaunch/data.json cannot be read"
    (project.folder / record.FILE_NAME).unlink()
    assert unknown(project) == "not recorded by a local run yet"


def test_a_run_of_another_program_keeps_the_record(project):
    before = (project.folder / record.FILE_NAME).read_text()
    source = project.folder / "trainer/data.py"
    record.save(project.folder, source, record.hash_source(source), {"steps": 3})
    record.save(project.folder, project.folder / "data.py", None, {"data": {"training": None}})
    assert (project.folder / record.FILE_NAME).read_text() == before
    assert json.loads(before).keys() == {"source", "sha256", "training", "validation"}
