from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.local import task_events
from distlaunch.local.task_events import EventFile

STEP = {"event": "step", "time": 12.5, "step": 40}


def test_a_file_that_is_not_there_yet_has_no_events(tmp_path):
    events = EventFile(tmp_path / "chief.events.jsonl")
    assert events.poll() == []
    events.path.write_text(json.dumps(STEP) + "\n")
    assert events.poll() == [STEP]
    assert events.poll() == []


@pytest.mark.parametrize(
    "garbage",
    [b"", b"{", b"\xff\xfe", b"[1]", b'"event"', b'{"step": 3}', b'{"event": 3}', b"[" * 100_000],
)
def test_garbage_is_left_out(tmp_path, garbage):
    events = EventFile(tmp_path / "events")
    line = json.dumps(STEP).encode()
    events.path.write_bytes(line + b"\n" + garbage + b"\n" + line + b"\n")
    assert events.poll() == [STEP, STEP]


def test_memory_stays_flat_without_any_newline(tmp_path, monkeypatch):
    monkeypatch.setattr(task_events, "_AT_ONCE", 64)
    events = EventFile(tmp_path / "events")
    line = json.dumps(STEP).encode()
    events.path.write_bytes(b"x" * 1000 + line + b"\n" + line + b"\n")
    found = [each for _ in range(40) for each in events.poll()]
    assert found == [STEP]
    assert len(events._partial) <= 64


def test_the_rest_is_all_that_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(task_events, "_AT_ONCE", 64)
    events = EventFile(tmp_path / "events")
    assert list(events.rest()) == []
    line = json.dumps(STEP).encode() + b"\n"
    events.path.write_bytes((b"x" * 200 + b"\n" + line) * 9 + line[:9])
    assert list(events.rest()) == [STEP] * 9
    assert list(events.rest()) == []


@given(st.lists(st.integers(0, 9), max_size=6), st.lists(st.integers(1, 30), min_size=1))
def test_any_pieces_give_the_same_events(tmp_path_factory, steps, sizes):
    expected = [{"event": "step", "step": step} for step in steps]
    data = b"".join(json.dumps(event).encode() + b"\n" for event in expected)
    events, found = EventFile(tmp_path_factory.mktemp("events") / "file"), []
    with events.path.open("wb", buffering=0) as file:
        while data:
            for size in sizes:
                file.write(data[:size])
                data = data[size:]
                found += events.poll()
    assert found == expected
