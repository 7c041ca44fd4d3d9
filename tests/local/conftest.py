"""Real processes through the real command line, and a look at what is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from textwrap import dedent
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE = 60.0  # seconds; none of the tests takes nearly as long
MARK = "DISTLAUNCH_TEST_MARK"

# What every program of the tests has at hand.
TOOLS = """
import json, os, signal, sys, time
from pathlib import Path

TASK = Path(os.environ["DISTLAUNCH_EVENTS"]).name.removesuffix(".events.jsonl")
RESTARTS = int(os.environ["DISTLAUNCH_RESTARTS"])
Path(f"{TASK}.{RESTARTS}.stat").symlink_to(f"/proc/{os.getpid()}/stat")

def await_state(task, state):
    stat = Path(f"{task}.{RESTARTS}.stat")
    while not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != state:
        time.sleep(0.01)

def is_up(process):
    Path("up", f"{TASK}.{process}").touch()

def await_up(count):
    until = time.monotonic() + 60
    while len(os.listdir("up")) < count and time.monotonic() < until:
        time.sleep(0.01)

def stay(process, *, stubborn=True):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if stubborn else ():
        signal.signal(number, signal.SIG_IGN)
    is_up(process)
    while True:
        time.sleep(60)

def leave_stubborn_descendants():
    if not os.fork():
        stay("grandchild")
    if not os.fork():
        os.setsid()
        if os.fork():
            os._exit(0)
        stay("daemon")

def report(event, **details):
    with open(os.environ["DISTLAUNCH_EVENTS"], "a") as file:
        file.write(json.dumps({"event": event, "time": time.time(), **details}) + chr(10))
"""


class Launch:
    """A launcher that runs a program of the tests, in a folder of its own."""

    def __init__(
        self, folder: Path, words: list[str], env: dict[str, str], **streams: object
    ) -> None:
        self.folder = folder
        self._mark = str(uuid.uuid4())
        self.process = subprocess.Popen(
            [sys.executable, "-m", "distlaunch", "local", *words],
            cwd=folder,
            env={**os.environ, **env, MARK: self._mark},
            **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | streams,
        )

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    def until_up(self, count: int) -> None:
        """Wait until so many processes are up."""
        until_true(lambda: self.is_over or len([*(self.folder / "up").iterdir()]) >= count)
        assert not self.is_over, self.end()

    def left(self) -> list[psutil.Process]:
        """Return the processes that this launcher left behind, or still has."""
        return left_of(self._mark)

    def end(self) -> tuple[int, str, str]:
        """Wait for the end and return the exit code, stdout and stderr."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, (out or b"").decode(), (err or b"").decode()


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}


def until_true(condition: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, "timeout"
        time.sleep(0.02)


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    return until_true


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Write a program of the tests, with the tools before it."""

    def write_program(body: str) -> Path:
        path = tmp_path / "program.py"
        path.write_text(TOOLS + dedent(body), encoding="utf-8")
        return path

    return write_program


@pytest.fixture
def launch(tmp_path: Path, write: Callable[[str], Path]) -> Iterator[Callable[..., Launch]]:
    """Start `distlaunch local` with a program of so many tasks; kills what a failed test leaves."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # behind `nohup` the launcher would ignore it
    (tmp_path / "up").mkdir()
    launches: list[Launch] = []

    def start(body: str, *options: str, workers: int | None = 2, env=(), **streams) -> Launch:
        words = [*words_of(workers, options), str(write(body))]
        launches.append(Launch(tmp_path, words, dict(env), **streams))
        return launches[-1]

    yield start
    for launched in launches:
        launched.process.kill()
        launched.end()
        for process in launched.left():
            process.kill()


@pytest.fixture
def run(cli, tmp_path: Path, write: Callable[[str], Path]) -> Callable[..., tuple[int, str, str]]:
    """Run a program of so many tasks to its end, in a fork of a Python that has started."""
    (tmp_path / "up").mkdir()
    mark = str(uuid.uuid4())

    def run_to_end(body: str, *options: str, workers: int | None = 2, env=()):
        words = [*words_of(workers, options), write(body)]
        done = cli("local", *words, env={**os.environ, **dict(env), MARK: mark})
        assert left_of(mark) == []
        return done.returncode, done.stdout, done.stderr

    return run_to_end


def words_of(workers: int | None, options: tuple[str, ...]) -> list[str]:
    words = [] if workers is None else [f"--workers={workers}"]
    return [*words, *options, "--", "python"]


def left_of(mark: str) -> list[psutil.Process]:
    """Return the processes with a mark."""
    return [p for p in psutil.process_iter() if _environment(p).get(MARK) == mark]
