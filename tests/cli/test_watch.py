"""`distlaunch status --watch`: a line or an object per change, or the status in place."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import termios
import threading
from contextlib import suppress
from types import SimpleNamespace

import pytest

from distlaunch.cli.settings import Settings
from distlaunch.engines.vertex.job_resource import read_status
from distlaunch.runs.watch import StatusWatch
from distlaunch.text import without_colours
from distlaunch.ui.console import Console

from ..json_schemas import load_checked  # noqa: TID252 - tests are no package

PROGRAM = """\
import pathlib, sys, time
while not pathlib.Path("is-shown").exists():
    time.sleep(0.05)
sys.exit({code})
"""


@pytest.fixture(autouse=True)
def watched(monkeypatch, project):
    """End the job's program when the job is shown to be running."""
    show = StatusWatch._show

    def show_and_end(self, view, **how):
        show(self, view, **how)
        if view.state == "RUNNING":
            (project / "is-shown").touch()

    monkeypatch.setattr(StatusWatch, "_show", show_and_end)


@pytest.mark.parametrize(("program_code", "end", "code"), [(0, "SUCCEEDED", 0), (7, "FAILED", 3)])
def test_a_line_for_each_change_in_a_pipe(run, cloud, program_code, end, code):
    cloud.launch(PROGRAM.format(code=program_code), "digits-1")
    done = run("status", "digits-1", "--watch", *cloud.options())
    states = [line.split(" ")[1] for line in done.out.splitlines()]
    assert (done.code, [*dict.fromkeys(states)][-2:]) == (code, ["RUNNING", end]), done.err
    assert re.search(rf"^digits-1 {end} · ran [0-9.]+ s", done.out, re.MULTILINE)
    assert (" failed first" in done.err) == (code == 3)


def test_an_object_for_each_change_as_json(run, cloud):
    cloud.launch(PROGRAM.format(code=7), "digits-1")
    done = run("status", "digits-1", "--watch", "--json", *cloud.options())
    views = [load_checked("show", line) for line in done.out.splitlines()]
    assert (done.code, views[-1]["state"]) == (3, "FAILED")
    assert views[-1]["failure"]["task"] in ("chief", "worker:0")
    assert views[0]["failure"] is None


@pytest.fixture
def terminal(monkeypatch):
    """Connect commands of this process with a terminal; return what it shows."""
    monkeypatch.setenv("TERM", "xterm")
    reading, writing = pty.openpty()
    fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
    monkeypatch.setattr(Settings, "console", lambda _: Console(out=writing, err=writing))
    shown: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # Linux's end of a terminal
            while piece := os.read(reading, 1 << 12):
                shown.append(piece)

    reader = threading.Thread(target=read)
    reader.start()

    def close() -> str:
        os.close(writing)
        reader.join()
        os.close(reading)
        return b"".join(shown).decode()

    return close


def test_the_status_in_place_on_a_terminal(run, cloud, terminal):
    cloud.launch(PROGRAM.format(code=0), "digits-1")
    assert run("status", "digits-1", "--watch", *cloud.options()).code == 0
    *frames, last = terminal().split("\r\x1b[2K")
    assert len(frames) > 1
    assert all(frame.count("state ") <= 1 for frame in frames)
    assert "RUNNING" in frames[-1]
    assert "state      SUCCEEDED" in without_colours(last)


@pytest.mark.parametrize("is_terminal", [False, True])
def test_figures_are_not_read_at_each_poll(monkeypatch, is_terminal):
    monkeypatch.setattr(Console, "has_progress", is_terminal)
    monkeypatch.setattr(Console, "progress", lambda *_: None)
    name = "projects/1/locations/us-central1/customJobs/7"
    resource = {"name": name, "state": "JOB_STATE_RUNNING", "startTime": "2026-11-23T10:00:00Z"}
    job = read_status(resource | {"jobSpec": {"workerPoolSpecs": []}}, "p")
    reads = []
    engine = SimpleNamespace(endpoint=None, read_figures=lambda job: reads.append(job) or {})
    watch = StatusWatch(Console(), engine, job, as_json=False)
    watch.stream(_Polls(job))
    for _ in range(3):
        watch.wait(0)
    assert len(reads) == 1


class _Polls(list):
    """A follower without events."""

    def __init__(self, status) -> None:
        self.status = status


def test_ctrl_c_names_the_command_that_reattaches(run, cloud, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    cloud.launch(PROGRAM.format(code=0), "digits-1")
    monkeypatch.setattr(StatusWatch, "wait", interrupt)
    done = run("status", "digits-1", "--watch", *cloud.options())
    assert (done.code, done.out) == (130, "")
    assert "reattach with 'distlaunch status --watch digits-1', cancel it with" in done.err
