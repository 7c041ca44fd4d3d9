from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from trainer.distributed import storage
from trainer.distributed.errors import StorageError
from trainer.distributed.storage import (
    is_remote,
    join,
    make_folder,
    make_new_folder,
    names_in,
    publish,
    read_if_there,
    read_whole,
    remove,
    remove_files,
    scratch_folder,
    write_whole,
)

TOO_MUCH = bytes(2 << 20)


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """A folder to be published."""
    folder = tmp_path / "new"
    (folder / "sub").mkdir(parents=True)
    for name in ("a", "marker", "sub/z", "values"):
        (folder / name).write_text(f"new {name}")
    return folder


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


@pytest.mark.parametrize(
    ("names", "path"),
    [
        (("gs://bucket/job/", "model", "a"), "gs://bucket/job/model/a"),
        (("/gcs/bucket", "a"), "/gcs/bucket/a"),
        (("job", "logs"), "job/logs"),
        (("/", "a"), "/a"),
    ],
)
def test_join(names, path):
    assert join(*names) == path


def test_only_urls_are_remote():
    assert is_remote("gs://bucket/a")
    assert not any(map(is_remote, ("/gcs/bucket/a", "a", "/a/b")))


def test_what_is_written_is_read(tmp_path):
    path = str(tmp_path / "file")
    write_whole(path, b"one")
    write_whole(path, b"two\0")
    assert read_whole(path) == b"two\0"
    assert names_in(str(tmp_path)) == ["file"]


def test_what_is_larger_than_a_piece_is_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "_CHUNK", 4)
    (tmp_path / "file").write_bytes(b"0123456789")
    assert read_whole(str(tmp_path / "file")) == b"0123456789"


def test_what_is_not_there_is_none(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    assert read_if_there(str(tmp_path / "file")) == b""
    assert read_if_there(str(tmp_path / "nothing")) is None
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


def test_publish_moves_everything_the_marker_last(new, tmp_path, monkeypatch):
    order = []
    rename = storage._rename

    def watched(source: str, target: str) -> None:
        order.append(Path(source).relative_to(new).as_posix())
        rename(source, target)

    monkeypatch.setattr(storage, "_rename", watched)
    publish(new, str(tmp_path / "to"), last="marker")
    assert order == ["a", "sub/z", "values", "marker"]
    assert contents(tmp_path / "to") == {name: f"new {name}" for name in order}


def test_publish_to_another_file_system(new, small_disk):
    publish(new, str(small_disk / "to"), last="marker")
    assert contents(small_disk / "to") == {
        name: f"new {name}" for name in ("a", "sub/z", "values", "marker")
    }
    assert names_in(str(small_disk / "to")) == ["a", "marker", "sub", "values"]


def test_the_old_marker_goes_before_anything_new_is_seen(new, tmp_path, monkeypatch):
    old = tmp_path / "to"
    old.mkdir()
    for name in ("marker", "values"):
        (old / name).write_text(f"old {name}")
    seen = []
    rename = storage._rename

    def watched(source: str, target: str) -> None:
        seen.append(contents(old))
        rename(source, target)

    monkeypatch.setattr(storage, "_rename", watched)
    publish(new, str(old), last="marker")
    assert seen[0] == {"values": "old values"}
    assert [moment for moment in seen if "marker" in moment] == []
    assert contents(old) == {name: f"new {name}" for name in ("a", "sub/z", "values", "marker")}


def test_a_publish_that_fails_does_not_show_the_marker(new, tmp_path):
    (tmp_path / "to" / "values" / "in the way").mkdir(parents=True)
    with pytest.raises(StorageError) as failed:
        publish(new, str(tmp_path / "to"), last="marker")
    assert "\n" not in str(failed.value)
    assert str(tmp_path / "to") in str(failed.value)
    assert "marker" not in contents(tmp_path / "to")
    assert not list((tmp_path / "to").rglob("*.partial"))


def test_a_full_disk_leaves_the_file_that_was_there(small_disk):
    path = small_disk / "file"
    path.write_text("old")
    with pytest.raises(StorageError) as failed:
        write_whole(str(path), TOO_MUCH)
    assert str(failed.value) == f"cannot write {path}: No space left on device"
    assert contents(small_disk) == {"file": "old"}


def test_a_full_disk_leaves_what_was_published(new, small_disk):
    publish(new, str(small_disk / "one"), last="marker")
    before = contents(small_disk)
    again = new.parent / "again"
    again.mkdir()
    (again / "values").write_bytes(TOO_MUCH)
    (again / "marker").write_text("new marker")
    for name in ("one", "two"):
        with pytest.raises(StorageError) as failed:
            publish(again, str(small_disk / name), last="marker")
        assert str(failed.value) == f"cannot write {small_disk / name}: No space left on device"
    assert contents(small_disk) == before


def failing_calls(place: str) -> list:
    return [
        lambda: make_folder(f"{place}/a"),
        lambda: write_whole(f"{place}/a", b"x"),
        lambda: read_whole(f"{place}/a"),
        lambda: scratch_folder(place).__enter__(),
    ]


@pytest.mark.parametrize("call", range(4))
def test_a_path_that_cannot_be_is_told_in_one_line(tmp_path, call):
    (tmp_path / "file").write_text("not a folder")
    place = str(tmp_path / "file")
    with pytest.raises(StorageError) as failed:
        failing_calls(place)[call]()
    assert place in str(failed.value)
    assert "\n" not in str(failed.value)


def test_a_file_that_is_not_there_is_told_in_one_line(tmp_path):
    with pytest.raises(StorageError, match=r"^cannot read .*/nothing: ") as failed:
        read_whole(str(tmp_path / "nothing"))
    assert "\n" not in str(failed.value)


def test_a_folder_is_made_and_left_empty(tmp_path):
    make_folder(str(tmp_path / "a" / "b"))
    make_folder(str(tmp_path / "a" / "b"))
    assert names_in(str(tmp_path / "a")) == ["b"]
    assert names_in(str(tmp_path / "a" / "b")) == []
    assert names_in(str(tmp_path / "nothing")) == []


def test_a_scratch_folder_is_beside_and_goes(tmp_path):
    with scratch_folder(str(tmp_path)) as folder:
        (folder / "a").write_text("a")
        assert folder.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("near", ["gs://bucket/job", "/gcs/bucket/job"])
def test_a_scratch_folder_for_a_bucket_is_on_this_machine(near, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with scratch_folder(near) as folder:
        assert folder.parent == tmp_path


def test_remove_takes_files_and_folders_and_what_is_gone(tmp_path):
    (tmp_path / "folder" / "sub").mkdir(parents=True)
    (tmp_path / "folder" / "sub" / "a").write_text("a")
    (tmp_path / "file").write_text("a")
    for name in ("folder", "file", "gone"):
        remove(str(tmp_path / name))
    assert list(tmp_path.iterdir()) == []


def test_files_are_removed_in_their_order_and_their_folder_with_them(tmp_path, monkeypatch):
    for name in ("one", "two", "three"):
        (tmp_path / "folder" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "folder" / name).write_text(name)
    removed = []
    gone = tf.io.gfile.remove

    def watched(path: str) -> None:
        removed.append(path.rpartition("/")[2])
        gone(path)

    monkeypatch.setattr(tf.io.gfile, "remove", watched)
    for _ in range(2):
        remove_files(str(tmp_path / "folder"), "two", "one")
    assert removed[:2] == ["two", "one"]
    assert list(tmp_path.iterdir()) == []


def test_a_new_folder_is_not_one_that_is_there(tmp_path):
    make_new_folder(str(tmp_path / "a" / "b"))
    with pytest.raises(StorageError, match=r"^cannot write .*/a/b: File exists$"):
        make_new_folder(str(tmp_path / "a" / "b"))
    make_new_folder("gs://bucket/a")


def test_errors_of_tensorflow_are_told_in_one_line():
    with (
        pytest.raises(StorageError, match=r"^cannot write gs://bucket/a: no such bucket$"),
        storage.explained("cannot write", "gs://bucket/a"),
    ):
        raise tf.errors.NotFoundError(None, None, "no such bucket\nand much more")
