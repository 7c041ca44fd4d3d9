from __future__ import annotations

import threading

import pytest

from distlaunch.background import BackgroundTask


def test_result_after_a_timeout():
    event = threading.Event()
    task = BackgroundTask(event.wait)
    with pytest.raises(TimeoutError):
        task.result(0.01)
    event.set()
    assert task.result() is True


def test_exception_is_raised_by_every_result():
    task = BackgroundTask(lambda: {}["missing"])
    for _ in range(2):
        with pytest.raises(KeyError, match="missing"):
            task.result()
