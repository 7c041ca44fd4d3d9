"""`distlaunch emulator` as a process, for tests of what speaks to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROJECT, REGION = "demo-project", "us-central1"
PATIENCE = 60.0  # seconds
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Emulator:
    """One that runs.

    Parameters
    ----------
    url
        Where it answers.
    storage
        The folder of its buckets.
    """

    url: str
    storage: Path

    @property
    def environment(self) -> dict[str, str]:
        """What leads commands to it."""
        return os.environ | {"DISTLAUNCH_ENDPOINT": self.url}

    def jobs(self, collection: str = "customJobs") -> list[dict[str, Any]]:
        """Return the jobs that it has, the newest first."""
        where = f"{self.url}/v1/projects/{PROJECT}/locations/{REGION}/{collection}"
        with _NO_PROXY.open(where) as answer:
            return json.load(answer).get(collection, [])

    def wait(self, *states: str) -> dict[str, Any]:
        """Wait until the newest job is in one of these states."""
        until = time.monotonic() + PATIENCE
        while True:
            job = next(iter(self.jobs()), {})
            if job.get("state", "").removeprefix("JOB_STATE_") in states:
                return job
            assert time.monotonic() < until, job
            time.sleep(0.05)


@contextlib.contextmanager
def running(
    folder: Path, *words: str, project: Path | None = None, **variables: str
) -> Iterator[Emulator]:
    """Run one that runs jobs as processes, unless `words` choose another backend.

    Parameters
    ----------
    folder
        Where its buckets are.
    project
        Where the jobs' processes run; `folder` by default.
    variables
        What it finds in its environment beside this process's.
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
        yield Emulator(url, folder)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
