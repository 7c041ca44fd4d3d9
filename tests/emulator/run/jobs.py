"""Jobs for the tests of the emulator's lives: made, run to their end, and looked at."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.logs import Logs
from distlaunch.emulator.run.life import Lives, Pace
from distlaunch.emulator.store import ENDED, Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.emulator.run.running import Machines

PATIENCE = 60.0  # seconds


@dataclass
class Jobs:
    """An emulator without its service."""

    lives: Lives
    store: Store
    logs: Logs
    states: dict[str, list[str]] = field(default_factory=dict)

    def begin(self, job: dict[str, Any]) -> str:
        """Have a job made and begun; returns its name."""
        collection = "hyperparameterTuningJobs" if "trialJobSpec" in job else "customJobs"
        name = self.store.create("my-project", "us-central1", collection, job)["name"]
        self.lives.begin(name)
        return name

    def get(self, name: str) -> dict[str, Any]:
        return self.store.get(name)

    def state(self, name: str) -> str:
        return self.get(name)["state"].removeprefix("JOB_STATE_")

    def wait(self, name: str, *states: str) -> dict[str, Any]:
        """Wait for one of some states; by default for the end and its error."""
        return self.wait_until(
            name,
            lambda job: (
                job["state"].removeprefix("JOB_STATE_") in states
                if states
                else job["state"] in ENDED and (job["state"] in _GOOD or "error" in job)
            ),
        )

    def wait_until(self, name: str, is_so: Any) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE
        while not is_so(job := self.get(name)):
            assert time.monotonic() < until, job
            time.sleep(0.01)
        return job

    def wait_for_line(self, name: str, text: str) -> None:
        until = time.monotonic() + PATIENCE
        while not any(text in line for _, _, line in self.lines(name)):
            assert time.monotonic() < until, self.lines(name)
            time.sleep(0.01)

    def run(self, job: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Run a job to its end; returns its name and what has become of it."""
        name = self.begin(job)
        return name, self.wait(name)

    def lines(self, name: str, *tasks: str) -> list[tuple[str, str, str]]:
        """Return task, severity and text of all lines, or of some tasks'."""
        entries = self.logs.scan(job_id=name.rpartition("/")[2])
        return [
            (entry.task_name, entry.severity, entry.text)
            for entry in entries
            if not tasks or entry.task_name in tasks
        ]

    def texts(self, name: str, *tasks: str) -> list[str]:
        return [text for _, _, text in self.lines(name, *tasks)]


_GOOD = ("JOB_STATE_SUCCEEDED", "JOB_STATE_PARTIALLY_SUCCEEDED")


@contextlib.contextmanager
def jobs_on(machines: Machines, **pace: Any) -> Iterator[Jobs]:
    """Give jobs that run on some machines, quickly."""
    quick = {"queued": 0.0, "pending": 0.0, "error": 0.0} | pace
    store, logs = Store(), Logs()
    lives = Lives(store, machines, logs, pace=Pace(**quick))
    try:
        yield Jobs(lives, store, logs)
    finally:
        lives.close()


def pool(*command: str, count: int = 1, image: str = "image", **more: Any) -> dict[str, Any]:
    """Return a worker pool."""
    container = {"imageUri": image, "command": list(command), **more}
    return {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": str(count),
        "containerSpec": container,
    }


def custom_job(*pools: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"displayName": "job", "jobSpec": {"workerPoolSpecs": list(pools), **spec}}
