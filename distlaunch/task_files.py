"""The files of a run's tasks: their output, events and metrics, in a folder per attempt."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.files import parse_object

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from distlaunch.job.tasks import Task

# A task's program can write to the file what it likes.
_EVENT_BYTES = 1 << 20  # read in one go; a longer line than that is no event
_LONGEST_LINE = 1 << 20  # bytes; a longer line is cut, so that memory stays flat
_NO_METRICS = {"checkpoint_path", "global_step", "timestamp", "trial"}  # in a metric file
_CR, _LF = b"\r", b"\n"
_RETURNS_AND_NEWLINE = re.compile(rb"\r+\n")
_RETURNS_AT_START = re.compile(rb"(?m)^\r+")
_RETURNS = re.compile(rb"\r+")


@dataclass(frozen=True, slots=True)
class AttemptFolder:
    """The folder of one attempt: the output of each task, and its events."""

    path: Path

    @property
    def host_log(self) -> Path:
        """What the process that holds the tasks prints."""
        return self.path / "host.log"

    def log(self, task: Task) -> Path:
        """Return the file for a task's output."""
        return self.path / f"{file_stem(task)}.log"

    def events(self, task: Task) -> Path:
        """Return the file for a task's events."""
        return self.path / f"{file_stem(task)}.events.jsonl"

    def logs(self) -> dict[str, Path]:
        """Return the files with the output of the tasks, by their names."""
        return {_task_name(path): path for path in _of_tasks(self.path, ".log")}

    def events_of_kind(self, kind: str) -> dict[str, list[dict[str, Any]]]:
        """Return the events of a kind that each task has reported, in turn."""
        return {
            _task_name(path): [each for each in EventFile(path).poll() if each["event"] == kind]
            for path in _of_tasks(self.path, ".events.jsonl")
        }


def file_stem(task: Task) -> str:
    """Return a task's name in the names of its files, such as ``worker-0``."""
    return str(task).replace(":", "-")


def _of_tasks(folder: Path, suffix: str) -> list[Path]:
    return [path for path in sorted(folder.glob(f"*{suffix}")) if not path.stem.startswith("host")]


def _task_name(path: Path) -> str:
    return path.name.partition(".")[0].replace("-", ":")


class Lines:
    r"""Gives out whole lines, each ended by ``\n``, however their bytes arrive.

    A line ends with ``\n``, ``\r\n`` or ``\r``. A ``\r`` with no text before it, as progress bars
    begin with, ends nothing. A line of over `longest` bytes is cut.
    """

    def __init__(self, longest: int = _LONGEST_LINE) -> None:
        self._longest = longest
        self._partial = bytearray()  # the start of a line, with returns that may yet end it

    def feed(self, data: bytes) -> bytes:
        """Return the lines that `data` completes."""
        may_end = _LF in data or _CR in data or self._partial.endswith(_CR)
        self._partial += data
        lines = self._take_lines() if may_end else b""
        text = self._partial.rstrip(_CR)
        if len(text) > self._longest:
            *pieces, rest = self._cut(text)
            del self._partial[: len(text) - len(rest)]
            lines += b"".join(piece + _LF for piece in pieces)
        return lines

    def close(self) -> bytes:
        """Return what was left at the end, as a line, or nothing."""
        left = bytes(self._partial.rstrip(_CR))
        self._partial.clear()
        return left + _LF if left else b""

    def _take_lines(self) -> bytes:
        """Remove the lines that have ended; returns at the very end may be part of a newline."""
        text = self._partial.rstrip(_CR)
        end = max(text.rfind(_LF), text.rfind(_CR)) + 1
        lines = bytes(self._partial[:end])
        del self._partial[:end]
        if _CR in lines:
            lines = _RETURNS_AND_NEWLINE.sub(_LF, lines)
            lines = _RETURNS.sub(_LF, _RETURNS_AT_START.sub(b"", lines))
        if len(lines) > self._longest:
            whole = lines.split(_LF)[:-1]
            lines = b"".join(piece + _LF for line in whole for piece in self._cut(line))
        return lines

    def _cut(self, line: bytes | bytearray) -> Iterator[bytes]:
        """Cut a line into pieces that are not too long, but not inside a character of UTF-8."""
        start = 0
        while len(line) - start > self._longest:
            end = start + self._longest
            points = range(end, max(end - 4, start), -1)
            end = next((point for point in points if line[point] & 0xC0 != 0x80), end)
            yield bytes(line[start:end])
            start = end
        yield bytes(line[start:])


class EventFile:
    """Reads what was appended to a file since the last look; the file may not exist yet.

    With `last`, it begins with that many bytes before the end.
    """

    def __init__(self, path: Path, *, last: int | None = None) -> None:
        self._path = path
        self._read_to = 0
        if last is not None:
            with suppress(OSError):
                self._read_to = max(path.stat().st_size - last, 0)
        self._partial = b""

    def poll(self) -> Iterator[dict[str, Any]]:
        """Yield the new events; lines that are none are left out, half ones wait for the rest."""
        with suppress(OSError), self._path.open("rb") as file:
            file.seek(self._read_to)
            while data := file.read(_EVENT_BYTES):
                self._read_to += len(data)
                *lines, self._partial = (self._partial + data).split(b"\n")
                if len(self._partial) > _EVENT_BYTES:
                    self._partial = b"\0"  # makes no event of what the line ends with
                yield from filter(None, map(_parse_event, lines))


def _parse_event(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and isinstance(value.get("event"), str) else None


def read_metrics(lines: str) -> Iterator[tuple[int, dict[str, float | None]]]:
    """Yield step and metrics of each line of a trial's metric file, as cloudml-hypertune writes it.

    A value that is no number is None.
    """
    for line in lines.splitlines():
        try:
            record = parse_object(line.encode())
        except ValueError:
            continue  # the program writes the line, or was killed while it did
        step = _number(record.get("global_step")) or 0.0
        metrics = {name: _number(record[name]) for name in record if name not in _NO_METRICS}
        yield int(step) if math.isfinite(step) else 0, metrics


def _number(value: Any) -> float | None:
    with suppress(OverflowError, TypeError, ValueError):
        return float(value)
    return None
