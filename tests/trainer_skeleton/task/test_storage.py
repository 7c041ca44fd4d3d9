from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from distlaunch_trainer.errors import StorageError
from distlaunch_trainer.task import storage
from distlaunch_trainer.task.storage import (
    make_folder,
    names_in,
    publish,
    read_if_there,
    read_whole,
    scratch_folder,
    write_whole,
)

NAMES = ("a", "sub/z", "values", "marker")


@pytest.fixture
def new(tmp_path: Path) -> Path:
    folder = tmp_path / "new"
    (folder / "sub").mkdir(parents=True)
    for name in NAMES:
        (folder / name).write_text(f"new {name}")
    return folder


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


def test_files_are_read_as_written(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "_CHUNK", 4)
    path = str(tmp_path / "file")
    write_whole(path, b"one")
    write_whole(path, b"0123456\0 9")
    assert read_whole(path) == b"0123456\0 9"
    assert names_in(str(tmp_path)) == ["file"]
    assert read_if_there(path) == b"0123456\0 9"
    assert read_if_there(str(tmp_path / "no" / "folder")) is None
    with pytest.raises(StorageError, match=r"^cannot read "):
        read_if_there(str(tmp_path / "file" / "below"))


def test_a_file_is_never_seen_half_written(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    seen = []
    replace = Path.replace

    def watched(partial: Path, target: str) -> None:
        seen.append((path.read_bytes(), partial.read_bytes()))
        replace(partial, target)

    monkeypatch.setattr(Path, "replace", watched)
    write_whole(str(path), b"new")
    assert seen == [(b"old", b"new")]
    assert path.read_bytes() == b"new"


def test_publish_writes_the_marker_last_and_removes_the_old_one_first(new, tmp_path, monkeypatch):
    target = tmp_path / "to"
    target.mkdir()
    for name in ("marker", "values"):
        (target / name).write_text(f"old {name}")
    contents_before = []
    rename = storage._rename

    def recorded(source: str, path: str) -> None:
        contents_before.append(contents(target))
        rename(source, path)

    monkeypatch.setattr(storage, "_rename", recorded)
    publish(new, str(target), last="marker")
    assert contents_before[0] == {"values": "old values"}
    assert [files for files in contents_before if "marker" in files] == []
    assert contents(target) == {name: f"new {name}" for name in NAMES}


def refusal(action, *arguments, **options):
    """Return the line with which an action is refused."""
    with pytest.raises(StorageError) as failed:
        action(*arguments, **options)
    assert "\n" not in str(failed.value)
    return str(failed.value)


def test_a_publish_that_fails_does_not_show_the_marker(new, tmp_path):
    (tmp_path / "to" / "values" / "in the way").mkdir(parents=True)
    assert str(tmp_path / "to") in refusal(publish, new, str(tmp_path / "to"), last="marker")
    assert "marker" not in contents(tmp_path / "to")
    assert not list((tmp_path / "to").rglob("*.partial"))


def test_a_full_disk_leaves_what_was_there(new, small_disk):
    """The target is on another file system."""
    file, folder = small_disk / "file", small_disk / "folder"
    file.write_text("old")
    publish(new, str(folder), last="marker")
    before = contents(small_disk)
    assert before == {"file": "old", **{f"folder/{name}": f"new {name}" for name in NAMES}}
    too_much = bytes(2 << 20)
    text = refusal(write_whole, str(file), too_much)
    assert text == f"cannot write {file}: No space left on device"
    (new / "values").write_bytes(too_much)
    text = refusal(publish, new, str(folder), last="marker")
    assert text == f"cannot write {folder}: No space left on device"
    assert contents(small_disk) == before


def test_errors_are_one_line_with_the_path(tmp_path):
    path = str(tmp_path / "file")
    write_whole(path, b"not a folder")
    assert path in refusal(make_folder, f"{path}/a")
    assert path in refusal(write_whole, f"{path}/a", b"x")
    assert path in refusal(read_whole, f"{path}/a")
    assert path in refusal(scratch_folder(path).__enter__)
    error = tf.errors.NotFoundError(None, None, "no such bucket\nand much more")

    def fail():
        with storage.explained("cannot write", "gs://bucket/a"):
            raise error

    assert refusal(fail) == "cannot write gs://bucket/a: no such bucket"


@pytest.mark.parametrize(
    ("reason", "has_remedy"),
    [
        ("Error executing an HTTP request: libcurl code 6 meaning 'Could not resolve host'", True),
        ("Error executing an HTTP request: HTTP response code 401 with body 'Anonymous'", True),
        ("All attempts to get a Google authentication bearer token failed", True),
        ("Error executing an HTTP request: HTTP response code 404", False),
    ],
)
def test_a_bucket_without_access_names_the_login(reason, has_remedy):
    def fail(path):
        with storage.explained("cannot write", path):
            raise tf.errors.UnavailableError(None, None, reason)

    assert ("'gcloud auth application-default login'" in refusal(fail, "gs://a/b")) == has_remedy
    assert "gcloud" not in refusal(fail, "/folder")


def test_scratch_folders(tmp_path, monkeypatch):
    """Beside the target, or on this machine for a bucket; removed at the end."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "job").mkdir()
    parents = {str(tmp_path / "job"): tmp_path / "job", "/gcs/bucket/job": tmp_path}
    for target, parent in parents.items():
        with scratch_folder(target) as folder:
            assert folder.parent == parent
        assert not folder.exists()
