from __future__ import annotations

import threading

import pytest

from distlaunch.background import BackgroundTask


def test_result_after_a_timeout_and_an_exception_in_every_result():
    event = threading.Event()
    task = BackgroundTask(event.wait)
    with pytest.raises(TimeoutError):
        task.result(0.01)
    event.set()
    assert task.result() is True
    failed = BackgroundTask(lambda: {}["missing"])
    for _ in range(2):
        with pytest.raises(KeyError, match="missing"):
            failed.result()
