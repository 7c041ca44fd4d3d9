"""Downloads: one at a time, and an error of one line."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from distlaunch_trainer import downloading
from distlaunch_trainer.errors import DataError


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
