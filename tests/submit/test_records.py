from __future__ import annotations

import errno
import json
import os
import re
import shutil
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch import timestamps
from distlaunch.errors import DistlaunchError
from distlaunch.job.launch import new_launch_id
from distlaunch.paths import JOBS
from distlaunch.redaction import REDACTED, redact
from distlaunch.submit.records import Record, Records

RESOURCE = "projects/my-project/locations/us-central1/customJobs/4711"


def record(launch_id: str = "digits-1", **changes) -> Record:
    plain = Record(
        launch_id=launch_id,
        name="digits",
        project="my-project",
        region="us-central1",
        collection="customJobs",
        content="abc",
        request={"displayName": "digits"},
        time="2026-11-21T16:55:00Z",
    )
    return replace(plain, **changes)


@pytest.fixture
def records(tmp_path) -> Records:
    return Records(tmp_path)


def test_records_are_listed_and_looked_up(records, tmp_path):
    first = record("digits-1", region="europe-west4", resource=RESOURCE)
    second = record("digits-2", time="2026-11-21T16:56:00Z")
    records.write(second)
    records.write(first)
    assert (tmp_path / ".distlaunch/.gitignore").read_text() == "*\n"
    assert records.all() == [second, first]
    for name in (None, "digits", "digits-2"):
        assert records.find(name) == second
    for name in ("digits-1", "4711", RESOURCE):
        assert records.find(name) == first
    assert records.find("4712") is None
    assert records.find(None, region="europe-west4") == first
    assert records.find("digits", project="other") is None
    assert records.hint("digit") == "; did you mean 'digits'?"


def test_a_refused_launch_is_found_by_its_name_only(records):
    records.write(record("digits-1"))
    refused = record("digits-2", time="2026-11-21T16:56:00Z", is_open=False)
    records.write(refused)
    assert records.find(None) == record("digits-1")
    assert records.find("digits-2") == refused


def test_an_open_launch_of_the_same_content_is_unfinished(records):
    records.write(record())
    assert records.find_unfinished("other") is None
    assert records.find_unfinished("abc") == record()
    records.write(record(is_open=False))
    assert records.find_unfinished("abc") is None


def test_a_launch_that_was_moved_is_continued_where_it_is(records):
    records.write(record("digits-1"))
    records.write(record("digits-2", moved_from="digits-1", time="2026-11-21T16:00:00Z"))
    assert records.find_unfinished("abc").launch_id == "digits-2"
    assert records.find_moved("digits-1").launch_id == "digits-2"
    assert records.find_moved("digits-2") is None


def test_a_change_of_a_record_keeps_the_changes_of_other_commands(records):
    records.write(record())
    records.note_cancelled(record())
    assert records.update(record(), is_open=False) == record(is_cancelled=True, is_open=False)


def test_a_record_is_for_its_owner_and_is_not_written_through_a_symlink(records, tmp_path):
    records.write(record())
    [path] = (tmp_path / JOBS).glob("*.json")
    assert path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "elsewhere").mkdir()
    shutil.rmtree(tmp_path / JOBS)
    (tmp_path / JOBS).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DistlaunchError, match=r"jobs is a symlink"):
        records.write(record())
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_newest_of_two_records_of_one_second(records):
    records.write(record("digits-b", time=timestamps.format(time.time())))
    records.write(record("digits-a", time=timestamps.format(time.time())))
    assert records.find("digits").launch_id == "digits-a"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "Expecting value: line 1 column 1 (char 0)"),
        ("[]", "not an object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"launch_id": "broken"}', "missing"),
        (json.dumps(asdict(record()) | {"launch_id": "../broken"}), "the launch id is ../broken"),
        (json.dumps(asdict(record()) | {"is_open": "no"}), "is_open is not of type bool"),
        (json.dumps(asdict(record("broken")) | {"choice": -1}), "the choice is -1"),
        (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
        (os.mkfifo, "not a regular file"),
        (Path.mkdir, "Is a directory"),
        (lambda path: path.symlink_to(path), "symbolic links"),
    ],
    ids=lambda value: str(getattr(value, "__name__", value))[:30],
)
def test_an_invalid_record_is_ignored_with_one_warning(content, reason, tmp_path):
    path = tmp_path / JOBS / "broken.json"
    path.parent.mkdir(parents=True)
    content(path) if callable(content) else path.write_text(content)
    messages = []
    records = Records(tmp_path, lambda *message: messages.append(message))
    records.write(record("digits-1"))
    assert records.all() == records.all() == [record("digits-1")]
    [(text, level)] = messages
    assert text.startswith(f"{path}: not a valid record (")
    assert reason in text
    assert (text[-10:], level) == ("); ignored", "warning")


def test_a_record_of_a_newer_version_is_read(tmp_path):
    path = tmp_path / JOBS / "digits-1.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(asdict(record()) | {"colour": "red"}))
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert Records(tmp_path).all() == [record()]


def test_without_a_record_nothing_is_submitted(records, tmp_path):
    (tmp_path / ".distlaunch").write_text("in the way")
    with pytest.raises(DistlaunchError, match="cannot be written"):
        records.write(record())
    with pytest.raises(DistlaunchError, match="cannot be written"), records.lock():
        pass
    records.note_cancelled(record())


def test_a_file_system_without_locks_is_tolerated(tmp_path, monkeypatch):
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with Records(tmp_path).lock():
        assert (tmp_path / JOBS / ".lock").exists()


@given(st.text(st.characters(codec="ascii", categories=["Ll", "Nd"]), min_size=1, max_size=63))
def test_a_launch_id_can_be_a_label(name):
    assert re.fullmatch(r"[a-z0-9_-]{1,63}", new_launch_id(name))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values, st.text(min_size=12))
def test_no_value_of_a_variable_is_recorded(around, secret):
    spec = {"containerSpec": {"env": [{"name": "TOKEN", "value": f"<{secret}>"}]}}
    request = {"around": around, "jobSpec": {"workerPoolSpecs": [spec]}}
    kept = redact(request)
    assert f"<{secret}>" not in json.dumps(kept["jobSpec"], ensure_ascii=False)
    [pool] = kept["jobSpec"]["workerPoolSpecs"]
    assert pool["containerSpec"]["env"] == [{"name": "TOKEN", "value": REDACTED}]
