"""Lines however their bytes arrive, and events in pieces."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distlaunch import task_files
from distlaunch.task_files import EventFile, Lines
from distlaunch.tensorflow_noise import without_noise

SEVERAL = st.lists(
    st.sampled_from([b"a", b"bc", "é€𝄞".encode(), b"\xff", b"\n", b"\r", b"\r\n", b"\r\r\n"])
    | st.binary(max_size=5),
    max_size=40,
).map(b"".join)
CUTS = st.lists(st.integers(min_value=0, max_value=120), max_size=12)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    return [data[start:end] for start, end in pairwise(ends)]


def lines_of(chunks: list[bytes], longest: int = 1 << 20) -> bytes:
    splitter = Lines(longest)
    return b"".join([splitter.feed(chunk) for chunk in chunks] + [splitter.close()])


@given(SEVERAL, CUTS)
@example(b"a\r\nb\n", [2])
@example(b"\r10 %\r20 %\r\n", [5, 10])
def test_any_chunking_gives_the_same_lines(data, cuts):
    assert lines_of(pieces(data, cuts)) == lines_of([data])
    assert lines_of([bytes([byte]) for byte in data]) == lines_of([data])


@given(SEVERAL)
def test_lines_are_those_between_the_ends(data):
    """Every newline ends a line; returns end one where there is text."""
    expected = []
    for line in re.sub(rb"\r+\n", b"\n", data).split(b"\n"):
        expected += [part for part in re.split(rb"\r+", line) if part] or [b""]
    if expected[-1] == b"":
        expected.pop()
    assert lines_of([data]) == b"".join(line + b"\n" for line in expected)


@given(SEVERAL, CUTS, st.integers(min_value=4, max_value=9))
def test_long_lines_are_cut_alike_however_they_come(data, cuts, longest):
    whole = lines_of([data], longest)
    assert lines_of(pieces(data, cuts), longest) == whole
    assert max((len(line) for line in whole.split(b"\n")), default=0) <= longest
    assert whole.replace(b"\n", b"") == re.sub(rb"[\r\n]", b"", data)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1), st.integers(4, 9))
def test_no_character_is_torn_by_a_cut(text, longest):
    lines = lines_of([text.encode()], longest).decode().split("\n")
    assert "".join(lines) == text


def test_memory_stays_flat_without_any_end():
    splitter = Lines(longest=1 << 10)
    given_out = 0
    for _ in range(1000):
        given_out += splitter.feed(b"x" * 4096).count(b"x")
    assert 1000 * 4096 - given_out <= 1 << 10


NOISE = Path(__file__).with_name("tensorflow_noise.txt").read_bytes()


def test_noise_of_tensorflow_is_left_out():
    assert without_noise(b"first\n" + NOISE + b"last\n") == b"first\nlast\n"
    for line in NOISE.splitlines(keepends=True):
        assert without_noise(line) == b"", line


OF_PYTHON_IN_TENSORFLOW = b"""\
W0000 00:00:1795382019.670982   19039 op_kernel.cc:1845] INVALID_ARGUMENT: ValueError: no picture
Traceback (most recent call last):

  File "script_ops.py", line 269, in __call__
    ret = func(*args)
          ^^^^^^^^^^^

ValueError: no picture


\t [[{{node PyFunc}}]]
\t [[while/body/_1/while/IteratorGetNext]]
"""


def test_only_tensorflow_s_copies_of_a_traceback_are_left_out():
    own = b'Traceback (most recent call last):\n  File "task.py", line 2, in f\nValueError: no\n'
    assert without_noise(OF_PYTHON_IN_TENSORFLOW + own) == own


@pytest.mark.parametrize(
    "line",
    [
        b"2026-11-21 01:35:07.125: E tensorflow/a.cc:152] RESOURCE_EXHAUSTED: out of memory\n",
        b"W0000 00:00:1741.1 12 gpu.cc:1] failed call to cuInit: CUDA_ERROR_UNKNOWN\n",
        b"I see trouble in my.cc:12] here\n",
        b"a line about my.cc:12] I wrote\n",
        b"already registered in my.h:1]\n",
        b"/job:worker/replica:0/task:0 is my device\n",
    ],
)
def test_other_lines_stay(line):
    assert without_noise(line + NOISE + line) == line + line


OF_CHECK_NUMERICS = b"""
!!! Detected Infinity or NaN in output 0 of graph op "Log" (# of outputs: 1) !!!
  dtype: <dtype: 'float32'>

  Stack trace of op's creation ("->": inferred user code):
    + ...site-packages/tensorflow/python/framework/ops.py (L1221) from_node_def
    |

 : Tensor had NaN values
"""


def test_a_report_of_check_numerics_is_left_to_the_trainer():
    line = b"trainer: error: chief: step 5 failed: NaN in the output of Log\n"
    assert without_noise(b"first\n" + OF_CHECK_NUMERICS + line) == b"first\n" + line


def test_the_options_of_a_server_are_noise():
    """TensorFlow's server prints its whole configuration when the chief connects."""
    block = (
        b"before\n"
        b"I0000 00:00:1795420206.496972    2854 eager_service.cc:355] SessionOptions: goo.gle\n"
        b'device_count {\n  key: "CPU"\n  value: 1\n}\nallow_soft_placement: true\n'
        b"experimental {\n}\n\n"
        b"after: 1\n"
    )
    assert without_noise(block) == b"before\nafter: 1\n"


STEP = {"event": "step", "time": 12.5, "step": 40}
LINE = json.dumps(STEP).encode() + b"\n"


@pytest.mark.parametrize(
    "garbage",
    [b"", b"{", b"\xff\xfe", b"[1]", b'"event"', b'{"step": 3}', b'{"event": 3}', b"[" * 100_000],
)
def test_lines_that_are_no_events_are_left_out(tmp_path, garbage):
    path = tmp_path / "events"
    events = EventFile(path)
    assert list(events.poll()) == []
    path.write_bytes(LINE + garbage + b"\n" + LINE)
    assert list(events.poll()) == [STEP, STEP]


def test_memory_stays_flat_without_any_newline(tmp_path, monkeypatch):
    monkeypatch.setattr(task_files, "_EVENT_BYTES", 64)
    events = EventFile(tmp_path / "events")
    (tmp_path / "events").write_bytes(b"x" * 1000 + LINE + LINE)
    polled = []
    for _ in range(40):
        polled += events.poll()
        assert len(events._partial) <= 64
    assert polled == [STEP]


@given(st.lists(st.integers(0, 9), max_size=6), st.lists(st.integers(1, 30), min_size=1))
def test_any_pieces_give_the_same_events(tmp_path_factory, steps, sizes):
    expected = [{"event": "step", "step": step} for step in steps]
    data = b"".join(json.dumps(event).encode() + b"\n" for event in expected)
    path = tmp_path_factory.mktemp("events") / "file"
    events, polled = EventFile(path), []
    with path.open("wb", buffering=0) as file:
        while data:
            for size in sizes:
                file.write(data[:size])
                data = data[size:]
                polled += events.poll()
    assert polled == expected
