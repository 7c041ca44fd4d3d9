"""What a pipe gets; what a terminal gets is in test_console.py."""

from __future__ import annotations

import json
import os
import select
import time
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from distlaunch.ui.console import Console
from distlaunch.ui.events import JobChanged, Notice, TaskChanged, TaskLines, Trained
from distlaunch.ui.progress_view import JsonProgressView, ProgressView

if TYPE_CHECKING:
    from pathlib import Path

TASKS = ["chief", "worker:0", "worker:10"]


class Shown:
    """A watch, and what it has written so far."""

    def __init__(self, folder: Path, kind: type[ProgressView] = ProgressView) -> None:
        self.files = [folder / "out", folder / "err"]
        self.descriptors = [os.open(file, os.O_CREAT | os.O_WRONLY) for file in self.files]
        out, err = self.descriptors
        self.watch = kind(Console(out=out, err=err), TASKS)

    @property
    def out(self) -> str:
        return self.files[0].read_text()

    @property
    def err(self) -> str:
        return self.files[1].read_text()


@pytest.fixture
def shown(tmp_path):
    made = Shown(tmp_path)
    yield made
    for descriptor in made.descriptors:
        os.close(descriptor)


@pytest.fixture
def as_json(tmp_path):
    made = Shown(tmp_path, JsonProgressView)
    yield made
    for descriptor in made.descriptors:
        os.close(descriptor)


def test_lines_stand_behind_the_name_of_their_task(shown):
    shown.watch.handle(TaskLines("chief", "one\n\ntwo\n"))
    shown.watch.handle(TaskLines("worker:10", "three\n"))
    shown.watch.handle(TaskLines("worker:0", ""))
    shown.watch.handle(TaskLines("worker:0", "é \x0b\u2028 four\n"))
    assert shown.out == (
        "chief     | one\nchief     | \nchief     | two\nworker:10 | three\n"
        "worker:0  | é \\x0b\u2028 four\n"
    )
    assert shown.err == ""


def test_notices_go_to_stderr_with_what_they_quote_set_in(shown):
    shown.watch.handle(Notice("waiting for worker:0"))
    shown.watch.handle(Notice("worker:0 is slow", "warning"))
    shown.watch.handle(Notice("worker:0 failed; its last lines:\none\n  two\n", "error"))
    assert shown.out == ""
    assert shown.err == (
        "distlaunch: waiting for worker:0\n"
        "distlaunch: warning: worker:0 is slow\n"
        "distlaunch: error: worker:0 failed; its last lines:\n    one\n      two\n"
    )


@pytest.mark.parametrize(
    ("level", "told"),
    [
        ("debug", "chief started (pid 7), a notice, warning: a warning, error: an error"),
        ("info", "a notice, warning: a warning, error: an error"),
        ("warning", "warning: a warning, error: an error"),
        ("error", "error: an error"),
    ],
)
def test_level_says_what_is_left_out(shown, level, told):
    shown.watch._console.level = level
    shown.watch.handle(TaskChanged("chief", "started", "pid 7"))
    shown.watch.handle(Notice("a notice"))
    shown.watch.handle(Notice("a warning", "warning"))
    shown.watch.handle(Notice("an error", "error"))
    shown.watch.handle(TaskLines("chief", "always\n"))
    assert shown.err == "".join(f"distlaunch: {line}\n" for line in told.split(", "))
    assert shown.out == "chief     | always\n"


def test_training_events_show_nothing_in_a_pipe(shown):
    shown.watch.handle(Trained("chief", {"event": "step", "step": 3, "epoch": 1, "loss": 0.5}))
    shown.watch.handle(TaskChanged("chief", "started"))
    assert (shown.out, shown.err) == ("", "")


def test_end_with_a_summary(shown):
    shown.watch.summarise({"steps_per_epoch": 23}, logs="logs")
    assert (shown.out, shown.err) == ("steps per epoch  23\n", "")


def test_summary_that_the_primary_tells_is_shown_where_no_file_can_be_read(shown):
    shown.watch.handle(Trained("chief", {"event": "end", "summary": {"steps_per_epoch": 23}}))
    shown.watch.handle(Trained("worker:0", {"event": "end", "summary": {"steps_per_epoch": 7}}))
    shown.watch.handle(Trained("chief", {"event": "end", "summary": "garbage"}))
    shown.watch.summarise(None, logs="logs")
    assert (shown.out, shown.err) == ("steps per epoch  23\n", "")


@pytest.mark.parametrize("summary", [None, {}])
def test_end_without_a_summary(shown, summary):
    shown.watch.summarise(summary, logs="JOB/task-logs")
    assert shown.out == ""
    assert shown.err == "distlaunch: done; the tasks' output is in JOB/task-logs\n"


def test_a_task_of_which_nobody_knew_is_shown_too(shown):
    shown.watch.handle(TaskLines("ps:0", "one\n"))
    shown.watch.handle(TaskLines("trial:12/chief", "two\n"))
    assert shown.out == "ps:0      | one\ntrial:12/chief | two\n"


def test_states_are_told_once_with_how_long_the_one_before_took(shown):
    for event in (
        JobChanged("PENDING"),
        JobChanged("RUNNING", 123.4),
        JobChanged("FAILED", 90_000.0),
        JobChanged("FAILED", None, "The replica exited."),
    ):
        shown.watch.handle(event)
    assert shown.out == ""
    assert shown.err == (
        "distlaunch: state PENDING\n"
        "distlaunch: state RUNNING (PENDING took 2 min 3 s)\n"
        "distlaunch: error: state FAILED (RUNNING took 1 d 1 h)\n"
        "distlaunch: error: FAILED: The replica exited.\n"
    )


def test_a_bad_end_is_told_to_those_too_who_want_errors_only(shown):
    shown.watch._console.level = "error"
    shown.watch.handle(JobChanged("RUNNING", 3.0))
    shown.watch.handle(JobChanged("EXPIRED", 3.0, "Too long."))
    assert shown.err == (
        "distlaunch: error: state EXPIRED (RUNNING took 3.0 s)\n"
        "distlaunch: error: EXPIRED: Too long.\n"
    )


def test_json_is_an_object_a_line_and_alone_on_stdout(as_json):
    for event in (
        TaskLines("chief", "one\n\ntwo \u2028 é\n"),
        TaskLines("worker:0", "three\n", "2026-11-21T17:00:00Z", "ERROR"),
        TaskLines("worker:0", ""),
        JobChanged("RUNNING", 1.5),
        JobChanged("FAILED", None, "The replica exited."),
        TaskChanged("chief", "started", "pid 7"),
        Trained("chief", {"event": "step", "step": 3}),
        Notice("a notice", "warning"),
    ):
        as_json.watch.handle(event)
    as_json.watch.summarise({"steps_per_epoch": 23})
    as_json.watch.summarise(None, logs="logs")
    assert [json.loads(line) for line in as_json.out.split("\n")[:-1]] == [
        {"event": "line", "task": "chief", "text": "one"},
        {"event": "line", "task": "chief", "text": ""},
        {"event": "line", "task": "chief", "text": "two \u2028 é"},
        {
            "event": "line",
            "task": "worker:0",
            "text": "three",
            "time": "2026-11-21T17:00:00Z",
            "severity": "ERROR",
        },
        {"event": "state", "state": "RUNNING", "after": 1.5, "error": None},
        {"event": "state", "state": "FAILED", "after": None, "error": "The replica exited."},
        {"event": "task", "task": "chief", "state": "started", "detail": "pid 7"},
        {"event": "trained", "task": "chief", "data": {"event": "step", "step": 3}},
        {"event": "summary", "summary": {"steps_per_epoch": 23}},
    ]
    assert as_json.err == "distlaunch: warning: a notice\n"


def end(watch):
    with watch:
        pass


def test_end_by_ctrl_c_waits_for_no_reader():
    """It may come before the waiting has begun."""
    reader, writer = os.pipe()
    watch = ProgressView(Console(out=writer), TASKS)
    while not watch.is_full:
        watch.handle(TaskLines("chief", "x" * 99 + "\n"))
    with pytest.raises(KeyboardInterrupt), watch:
        raise KeyboardInterrupt
    assert watch.is_full
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("stream", ["out", "err"])
def test_end_waits_for_a_reader_as_long_as_it_is_there(stream, tmp_path):
    reader, writer = os.pipe()
    other = os.open(tmp_path / "other", os.O_CREAT | os.O_WRONLY)
    watch = ProgressView(Console(**{"out": other, "err": other, stream: writer}), TASKS)
    for _ in range(1000):
        watch.handle(TaskLines("chief", "x" * 99 + "\n"))
        watch.handle(Notice("x" * 99))
    closing = Thread(target=end, args=[watch])
    closing.start()
    got = 0
    while got < 1000:
        got += os.read(reader, 1 << 16).count(b"\n")
    closing.join()
    for descriptor in (reader, writer, other):
        os.close(descriptor)


def test_slow_reader_gets_everything_in_the_end():
    reader, writer = os.pipe()
    watch = ProgressView(Console(out=writer), TASKS)
    rounds, got = 0, b""
    while not watch.is_full:  # this never waits, though nobody reads
        watch.handle(TaskLines("chief", "".join(f"line {number}\n" for number in range(1000))))
        rounds += 1
    while got.count(b"\n") < 1000 * rounds:
        got += os.read(reader, 1 << 16)
        watch.pump()
    assert not watch.is_full
    assert got.decode() == "".join(f"chief     | line {n}\n" for n in range(1000)) * rounds
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        watch.handle(TaskLines("chief", "one\n"))
    end(watch)  # nothing waits any more
    os.close(writer)


def test_nothing_more_is_brought_before_a_slow_reader_has_room():
    reader, writer = os.pipe()
    watch = ProgressView(Console(out=writer), TASKS)
    brought = 0

    def events():
        nonlocal brought
        for _ in range(60):
            brought += 1
            yield TaskLines("chief", ("x" * 99 + "\n") * 200)

    showing = Thread(target=watch.stream, args=[events()])
    showing.start()
    while brought < 12:  # some 20 kB each, where the backlog takes 256 and the pipe 64
        time.sleep(0.01)
    time.sleep(0.3)
    assert brought < 20
    got = 0
    while got < 60 * 200:
        got += os.read(reader, 1 << 16).count(b"\n")
        if brought == 60 and showing.is_alive():
            showing.join(0.01)
        if not showing.is_alive():
            watch.pump()
    showing.join()
    os.close(reader)
    os.close(writer)


def test_waiting_hands_on_what_a_slow_reader_has_room_for():
    reader, writer = os.pipe()
    watch = ProgressView(Console(out=writer), TASKS)
    while not watch.is_full:
        watch.handle(TaskLines("chief", "x" * 99 + "\n"))
    waiting = Thread(target=watch.wait, args=[0.5])
    waiting.start()
    while waiting.is_alive():
        if select.select([reader], [], [], 0.01)[0]:
            os.read(reader, 1 << 16)
    assert not watch.is_full
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        watch.handle(TaskLines("chief", "one\n"))
    os.close(writer)
