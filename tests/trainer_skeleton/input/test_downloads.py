"""Downloads: one at a time, and an error of one line."""

from __future__ import annotations

import tarfile
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras
import pytest

from distlaunch_trainer import downloading
from distlaunch_trainer.errors import DataError
from distlaunch_trainer.input.downloads import share_downloads


def test_one_task_at_a_time_downloads(monkeypatch, tmp_path):
    """A lock of a file holds between threads as between processes."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    inside = threading.Event()
    release = threading.Event()
    order = []

    def first():
        with downloading("a", ""):
            inside.set()
            release.wait()
            order.append("first")

    def second():
        inside.wait()
        with downloading("b", ""):
            order.append("second")

    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(first), pool.submit(second)]
        inside.wait()
        assert not done[1].done()
        release.set()
        for each in done:
            each.result()
    assert order == ["first", "second"]


def test_a_download_that_fails_is_one_line_with_the_remedy():
    with (
        pytest.raises(DataError, match=r"^MNIST cannot be downloaded: no route; set MNIST_FILE$"),
        downloading("MNIST", "set MNIST_FILE"),
    ):
        raise OSError("no route\nto host")
    with downloading("MNIST", "set MNIST_FILE"):
        pass


@pytest.fixture
def shared(monkeypatch, tmp_path):
    """Downloads and archives that tasks share, in this test only."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for owner in (zipfile.ZipFile, tarfile.TarFile):
        monkeypatch.setattr(owner, "extractall", owner.extractall)
    for module in (keras.utils, keras.datasets.mnist.load_data.__globals__):
        set_item = monkeypatch.setitem if isinstance(module, dict) else monkeypatch.setattr
        set_item(module, "get_file", keras.utils.get_file)
    share_downloads()


def test_tasks_that_download_one_file_print_no_progress_bars(shared, tmp_path, capfd):
    (tmp_path / "source").write_bytes(bytes(100_000))
    origin = (tmp_path / "source").as_uri()

    def download(_):
        path = keras.utils.get_file("file", origin, cache_dir=str(tmp_path))
        return path, len(Path(path).read_bytes())

    with ThreadPoolExecutor(4) as pool:
        results = set(pool.map(download, range(4)))
    assert results == {(str(tmp_path / "datasets/file"), 100_000)}
    assert capfd.readouterr().out == ""
    assert keras.config.is_interactive_logging_enabled()
    assert keras.datasets.mnist.load_data.__globals__["get_file"] is keras.utils.get_file


def test_an_archive_that_another_task_has_unpacked_is_not_written_again(shared, tmp_path):
    (tmp_path / "a.txt").write_text("1")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("data/a.txt", "1")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(tmp_path / "a.txt", "data/a.txt")
    for opened in (zipfile.ZipFile, tarfile.open):
        folder = tmp_path / opened.__name__
        file = folder / "data/a.txt"
        # Of another task, of the same size, and half written.
        for content, expected in ((None, "1"), ("2", "2"), ("", "1")):
            if content is not None:
                file.write_text(content)
            name = "a.zip" if opened is zipfile.ZipFile else "a.tar"
            with opened(tmp_path / name) as archive:
                archive.extractall(folder)  # noqa: S202
            assert file.read_text() == expected
