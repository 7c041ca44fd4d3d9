"""`distlaunch emulator` as a process or in this one, for tests of what speaks to it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
import urllib.request
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from failing_calls import FailingEmulator

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROJECT, REGION = "demo-project", "us-central1"
PATIENCE = 60.0  # seconds
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Emulator:
    """One that runs, with the folder of its buckets."""

    url: str
    storage: Path
    process: subprocess.Popen[str] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which commands use it."""
        return os.environ | {"DISTLAUNCH_ENDPOINT": self.url}

    def create(self, job: dict[str, Any]) -> None:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._jobs, json.dumps(job).encode(), headers)  # noqa: S310
        _NO_PROXY.open(request).close()

    def jobs(self) -> list[dict[str, Any]]:
        """Return its custom jobs, the newest first."""
        with _NO_PROXY.open(self._jobs) as answer:
            return json.load(answer).get("customJobs", [])

    def wait(self, state: str) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE
        while (job := next(iter(self.jobs()), {})).get("state") != f"JOB_STATE_{state}":
            assert time.monotonic() < until, job
            time.sleep(0.05)
        return job

    @property
    def _jobs(self) -> str:
        return f"{self.url}/v1/projects/{PROJECT}/locations/{REGION}/customJobs"


@contextlib.contextmanager
def serving(folder: Path, faults: str = "", call_faults: str = "") -> Iterator[Emulator]:
    """Run one in this process, which has imported what one needs, with its buckets in a folder.

    Jobs are processes that run there; see failing_calls.py for faults of calls.
    """
    options = {"storage": folder, "faults": faults, "call_faults": call_faults}
    with FailingEmulator(project_dir=folder, **options) as emulator:
        yield Emulator(emulator.url, folder)


@contextlib.contextmanager
def running(
    folder: Path, *words: str, project: Path | None = None, **variables: str
) -> Iterator[Emulator]:
    """Run one as a process, with its buckets in a folder; jobs are processes by default.

    Processes run in `project`, by default the same folder; `variables` are added to the
    environment.
    """
    words = ("--run-with=process", f"--project-dir={project or folder}", *words)
    process = subprocess.Popen(
        [sys.executable, "-m", "distlaunch", "emulator", "--port=0", f"--storage={folder}", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | variables,
    )
    try:
        assert process.stdout
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:"), url
        yield Emulator(url, folder, process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)


def wait_until_full(pipe: IO[Any]) -> None:
    """Wait until what writes to a pipe of 64 kB has to wait for its reader.

    Pages of the pipe that are not full count as full, so it may hold some thousand bytes less.
    """
    until = time.monotonic() + PATIENCE
    before = 0
    while (unread := _unread(pipe)) < 48_000 or unread > before:
        before = unread
        assert time.monotonic() < until, unread
        time.sleep(1)


def _unread(pipe: IO[Any]) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
