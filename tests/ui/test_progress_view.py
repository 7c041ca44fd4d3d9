"""What a pipe gets; what a terminal gets is in test_console.py."""

from __future__ import annotations

import json
import os
import select
import time
from threading import Thread

import pytest

from distlaunch.events import JobChanged, Notice, TaskChanged, TaskLines, Trained
from distlaunch.ui.console import Console
from distlaunch.ui.progress_view import JsonProgressView, ProgressView

TASKS = ["chief", "worker:0", "worker:10"]


@pytest.fixture
def show(tmp_path):
    """Return what a view writes to stdout and stderr for some events and summaries."""

    def write(*events, kind=ProgressView, level="info", summaries=()):
        with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
            view = kind(Console(level, out=out.fileno(), err=err.fileno()), TASKS)
            for event in events:
                view.handle(event)
            for summary in summaries:
                view.summarise(summary, logs="JOB/task-logs")
        return (tmp_path / "out").read_text(), (tmp_path / "err").read_text()

    return write


def test_lines_are_behind_the_name_of_their_task(show):
    out, err = show(
        TaskLines("chief", "one\n\ntwo\n"),
        TaskLines("worker:10", "three\n"),
        TaskLines("worker:0", ""),
        TaskLines("worker:0", "é \x0b\u2028 four\n"),
        TaskLines("trial:12/chief", "five\n"),
    )
    assert out == (
        "chief     | one\nchief     | \nchief     | two\nworker:10 | three\n"
        "worker:0  | é \\x0b\u2028 four\ntrial:12/chief | five\n"
    )
    assert err == ""


@pytest.mark.parametrize(
    ("level", "messages"),
    [
        ("debug", "chief started (pid 7), a notice, warning: a warning, error: an error"),
        ("info", "a notice, warning: a warning, error: an error"),
        ("warning", "warning: a warning, error: an error"),
        ("error", "error: an error"),
    ],
)
def test_messages_from_a_level_on_go_to_stderr_with_quotations_indented(show, level, messages):
    out, err = show(
        TaskChanged("chief", "started", "pid 7"),
        Notice("a notice"),
        Notice("a warning", "warning"),
        Notice("an error\none\n  two\n", "error"),
        TaskLines("chief", "always\n"),
        Trained("chief", {"event": "step", "step": 3, "epoch": 1, "loss": 0.5}),
        level=level,
    )
    lines = "".join(f"distlaunch: {line}\n" for line in messages.split(", "))
    assert (out, err) == ("chief     | always\n", f"{lines}    one\n      two\n")


def test_the_summary_is_that_of_the_file_or_else_of_the_primary_s_last_event(show):
    shown = show(
        Trained("chief", {"event": "end", "summary": {"steps_per_epoch": 23}}),
        Trained("worker:0", {"event": "end", "summary": {"steps_per_epoch": 7}}),
        Trained("chief", {"event": "end", "summary": "garbage"}),
        summaries=[{"steps_per_epoch": 22}, None],
    )
    assert shown == ("steps per epoch  22\nsteps per epoch  23\n", "")
    done = "distlaunch: done; the tasks' output is in JOB/task-logs\n"
    assert show(summaries=[None, {}]) == ("", done * 2)


def test_states_are_logged_once_with_how_long_the_one_before_took(show):
    shown = show(
        JobChanged("PENDING"),
        JobChanged("RUNNING", 123.4),
        JobChanged("FAILED", 90_000.0),
        JobChanged("FAILED", None, "The replica exited."),
    )
    assert shown == (
        "",
        "distlaunch: state PENDING\n"
        "distlaunch: state RUNNING (PENDING took 2 min 3 s)\n"
        "distlaunch: error: state FAILED (RUNNING took 1 d 1 h)\n"
        "distlaunch: error: FAILED: The replica exited.\n",
    )


def test_json_is_an_object_a_line_and_alone_on_stdout(show):
    out, err = show(
        TaskLines("chief", "one\n\ntwo \u2028 é\n"),
        TaskLines("worker:0", "three\n", "2026-11-21T17:00:00Z", "ERROR"),
        TaskLines("worker:0", ""),
        JobChanged("RUNNING", 1.5),
        JobChanged("FAILED", None, "The replica exited."),
        TaskChanged("chief", "started", "pid 7"),
        Trained("chief", {"event": "step", "step": 3}),
        Notice("a notice", "warning"),
        kind=JsonProgressView,
        summaries=[{"steps_per_epoch": 23}, None],
    )
    assert err == "distlaunch: warning: a notice\n"
    stamp = {"time": "2026-11-21T17:00:00Z", "severity": "ERROR"}
    assert [json.loads(line) for line in out.split("\n")[:-1]] == [
        {"event": "line", "task": "chief", "text": "one"},
        {"event": "line", "task": "chief", "text": ""},
        {"event": "line", "task": "chief", "text": "two \u2028 é"},
        {"event": "line", "task": "worker:0", "text": "three"} | stamp,
        {"event": "state", "state": "RUNNING", "after": 1.5, "error": None},
        {"event": "state", "state": "FAILED", "after": None, "error": "The replica exited."},
        {"event": "task", "task": "chief", "state": "started", "detail": "pid 7"},
        {"event": "trained", "task": "chief", "data": {"event": "step", "step": 3}},
        {"event": "summary", "summary": {"steps_per_epoch": 23}},
    ]


@pytest.fixture
def slow():
    """A view whose reader has taken nothing yet, and its end of the pipe."""
    reader, writer = os.pipe()
    yield ProgressView(Console(out=writer), TASKS), reader
    os.close(writer)


def read_lines(reader, count, proceed=lambda: None):
    """Read so many lines, and let the writer proceed after each part."""
    data = b""
    while data.count(b"\n") < count:
        if select.select([reader], [], [], 0.01)[0]:
            data += os.read(reader, 1 << 16)
        proceed()
    return data


def end(view):
    with view:
        pass


@pytest.mark.parametrize("stream", ["out", "err"])
def test_end_waits_for_a_reader_as_long_as_it_is_there(stream, tmp_path):
    reader, writer = os.pipe()
    with (tmp_path / "other").open("w") as other:
        files = {"out": other.fileno(), "err": other.fileno(), stream: writer}
        view = ProgressView(Console(**files), TASKS)
        for _ in range(1000):
            view.handle(TaskLines("chief", "x" * 99 + "\n"))
            view.handle(Notice("x" * 99))
        closing = Thread(target=end, args=[view])
        closing.start()
        read_lines(reader, 1000)
        closing.join()
    os.close(reader)
    os.close(writer)


def test_slow_reader_gets_everything_in_the_end(slow):
    view, reader = slow
    text, rounds = "".join(f"line {number}\n" for number in range(1000)), 0
    while not view.console.is_full:  # this never waits, though nothing is read
        view.handle(TaskLines("chief", text))
        rounds += 1
    data = read_lines(reader, 1000 * rounds, view.pump)
    assert not view.console.is_full
    assert data.decode() == "".join(f"chief     | line {n}\n" for n in range(1000)) * rounds
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        view.handle(TaskLines("chief", "one\n"))
    end(view)  # nothing waits any more


def test_nothing_more_is_brought_before_a_slow_reader_has_room(slow):
    view, reader = slow
    brought = []

    def events():
        for number in range(60):
            brought.append(number)
            yield TaskLines("chief", ("x" * 99 + "\n") * 200)

    showing = Thread(target=view.stream, args=[events()])
    showing.start()
    while len(brought) < 12:  # some 20 kB each, where the backlog takes 256 and the pipe 64
        time.sleep(0.01)
    time.sleep(0.3)
    assert len(brought) < 20
    read_lines(reader, 60 * 200, lambda: showing.is_alive() or view.pump())
    showing.join()
    os.close(reader)


def test_waiting_writes_what_a_slow_reader_has_room_for(slow):
    view, reader = slow
    while not view.console.is_full:
        view.handle(TaskLines("chief", "x" * 99 + "\n"))
    waiting = Thread(target=view.wait, args=[0.5])
    waiting.start()
    while waiting.is_alive():
        if select.select([reader], [], [], 0.01)[0]:
            os.read(reader, 1 << 16)
    assert not view.console.is_full
    os.close(reader)
