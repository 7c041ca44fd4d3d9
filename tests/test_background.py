from __future__ import annotations

import threading

import pytest

from distlaunch.background import BackgroundTask


def test_work_is_done_while_nobody_waits_for_it():
    begun, go_on = threading.Event(), threading.Event()

    def work():
        begun.set()
        go_on.wait()
        return 42

    meanwhile = BackgroundTask(work)
    assert begun.wait(60)
    go_on.set()
    assert meanwhile.result() == 42


def test_what_it_raises_is_raised_where_it_is_asked_for():
    meanwhile = BackgroundTask(lambda: {}["missing"])
    for _ in range(2):
        with pytest.raises(KeyError, match="missing"):
            meanwhile.result()


def test_who_waits_no_longer_leaves_it_at_work():
    go_on = threading.Event()
    meanwhile = BackgroundTask(go_on.wait)
    with pytest.raises(TimeoutError):
        meanwhile.result(0.01)
    go_on.set()
    assert meanwhile.result() is True
