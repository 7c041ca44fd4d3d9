"""What a pipe gets; what a terminal gets is in test_console.py."""

from __future__ import annotations

import json
import os
import select
import time
from contextlib import nullcontext
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


ERROR = "ValueError: it is bad\n"


def test_the_same_error_of_several_tasks_is_shown_once(show):
    trace = f'Traceback:\n  File "a.py", line 1\n{ERROR}'
    events = [TaskLines(task, trace) for task in TASKS]
    platform = TaskLines("vertex", ERROR)
    out, _ = show(*events, platform, TaskLines("chief", "on\n"), TaskLines("worker:0", "on\n"))
    assert out.splitlines() == [
        *(f"chief     | {line}" for line in trace.splitlines()),
        "2 tasks   | the same error",
        "vertex    | ValueError: it is bad",
        *("chief     | on", "worker:0  | on"),
    ]
    out, _ = show(TaskLines("chief", ERROR), TaskLines("worker:0", f"its own\n{ERROR}"), Notice(""))
    assert out.splitlines()[1:] == ["worker:0  | its own", "worker:0  | the same error"]
    results = [TaskLines(task, "Error: 0.25\n") for task in TASKS]
    assert show(*results)[0].count("Error: 0.25") == len(TASKS)
    again = [TaskLines("chief", ERROR)] * 2
    assert show(*again)[0].count("it is bad") == 2
    assert show(*events, kind=JsonProgressView)[0].count("it is bad") == 3


def test_the_progress_line_of_a_tuning_job_has_the_figures_of_its_trials(monkeypatch):
    shown = []
    monkeypatch.setattr(Console, "has_progress", True)
    monkeypatch.setattr(Console, "progress", lambda _, text: shown.append(text))
    view = ProgressView(Console(), ["trial:9/chief", "trial:9/worker:0", "vertex"])
    for trial in (1, 2):
        figures = {"event": "figures", "step": 5, "examples_per_second": 10.0 * trial}
        for task in ("chief", "worker:0"):
            view.handle(Trained(f"trial:{trial}/{task}", figures))
    assert shown[-1] == "trial:1 10, trial:2 20 examples/s"


def test_figures_of_the_attempt_before_are_not_shown(monkeypatch):
    shown = []
    monkeypatch.setattr(Console, "has_progress", True)
    monkeypatch.setattr(Console, "progress", lambda _, text: shown.append(text))
    view = ProgressView(Console(), ["chief"])
    for event in (
        {"event": "figures", "gpu": 0.5},
        {"event": "ready"},
        {"event": "step", "step": 1},
    ):
        view.handle(Trained("chief", event))
    assert "GPU chief 50 %" in shown[0]
    assert shown[-1] == "step 1"


def test_figures_are_a_line_once_all_tasks_have_them(show):
    figures = {"event": "figures", "step": 9, "examples_per_second": 950.0, "gpu": 0.5}
    again = {**figures, "gpu": 0.25, "input": 0.1, "compute": 0.9}
    events = [Trained("chief", figures), Trained("worker:0", figures), Trained("worker:10", again)]
    out, err = show(*events, Trained("chief", again))
    line = "figures: 950 examples/s; input 10 %, compute 90 %; GPU chief 50 %, worker:0 50 %, "
    assert (out, err) == ("", f"distlaunch: {line}worker:10 25 %\n")
    out, _ = show(events[0], kind=JsonProgressView)
    assert json.loads(out) == {"event": "trained", "task": "chief", "data": figures}


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
def slow(tmp_path):
    """Return a view of which one stream is a pipe, and the pipe's two ends."""
    reader, writer = os.pipe()
    with (tmp_path / "other").open("w") as other:

        def make(stream):
            files = {"out": other.fileno(), "err": other.fileno(), stream: writer}
            return ProgressView(Console(**files), TASKS), reader

        yield make
    os.close(writer)


@pytest.mark.parametrize(
    ("stream", "event"),
    [("out", TaskLines("chief", ("x" * 99 + "\n") * 200)), ("err", Notice("x" * 20_000))],
)
def test_nothing_more_is_shown_before_a_slow_reader_has_room(slow, stream, event):
    view, reader = slow(stream)
    shown = []

    def events():
        for number in range(30):
            shown.append(number)
            yield event

    showing = Thread(target=view.stream, args=[events()])
    showing.start()
    while len(shown) < 3:  # some 20 kB each, and the pipe holds 64
        time.sleep(0.01)
    time.sleep(0.3)
    assert len(shown) <= 4
    data = b""
    while showing.is_alive() or select.select([reader], [], [], 0)[0]:
        if select.select([reader], [], [], 0.01)[0]:
            data += os.read(reader, 1 << 16)
    assert data.count(b"x") == 30 * (99 * 200 if stream == "out" else 20_000)
    os.close(reader)
    with pytest.raises(BrokenPipeError) if stream == "out" else nullcontext():
        view.handle(event)


def test_a_reader_that_takes_nothing_is_given_up_at_a_line_s_end(slow):
    view, reader = slow("out")
    view.console.hurry()
    start = time.monotonic()
    for _ in range(20):
        view.handle(TaskLines("chief", "line\n" * 1_000))
    assert 0.9 < time.monotonic() - start < 10
    data = os.read(reader, 1 << 20)
    assert set(data.splitlines(keepends=True)) == {b"chief     | line\n"}
    view.handle(TaskLines("chief", "late\n"))
    assert not select.select([reader], [], [], 0)[0]
    os.close(reader)
