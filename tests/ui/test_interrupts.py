from __future__ import annotations

import os
import signal
import threading

import pytest

from distlaunch.ui.interrupts import Interrupts


@pytest.fixture(autouse=True)
def _default_handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def work(done: list[str]) -> None:
    ctrl_c()
    done.append("all")


def test_ctrl_c_waits_for_what_is_done_as_a_whole():
    interrupts, done = Interrupts(), []
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt), interrupts:
            work(done)
    with interrupts:
        done.append("more")
    assert done == ["all", "all", "more"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_it_comes_at_once_where_it_is_let_through():
    interrupts, done = Interrupts(), []
    with interrupts, pytest.raises(KeyboardInterrupt), interrupts.let_through():
        work(done)
    with interrupts:
        ctrl_c()
        with pytest.raises(KeyboardInterrupt), interrupts.let_through():
            done.append("too late")
    assert done == []


def test_an_ignored_ctrl_c_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interrupts():
        ctrl_c()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_in_other_threads_it_does_nothing():
    done = []

    def work() -> None:
        with Interrupts() as interrupts, interrupts.let_through():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]
