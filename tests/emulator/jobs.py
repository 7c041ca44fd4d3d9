"""Runs jobs without the emulator's service."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.job_runner import JobRunner, Timings
from distlaunch.emulator.logs import LogStore
from distlaunch.emulator.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distlaunch.emulator.replica_group import Backend

TIMEOUT = 60.0  # seconds
CHIEF = "workerpool0-0"


class Jobs:
    """A store, its log and what runs its jobs, without waiting in their states."""

    def __init__(self, backend: Backend, **timings: Any) -> None:
        self.store, self.logs = Store(), LogStore()
        timings = {"states": 0.0, "error": 0.0, **timings}
        self.runner = JobRunner(self.store, backend, self.logs, Timings(**timings))

    def start(self, job: dict[str, Any], state: str = "") -> str:
        """Create and start a job, wait for a state, if given, and return its name."""
        name = self.store.create("projects/p/locations/us-central1/customJobs", job)["name"]
        self.runner.start(name)
        if state:
            self.wait(name, state)
        return name

    def run(self, job: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Run a job to its end; return its name and its last state."""
        name = self.start(job)
        return name, self.wait(name)

    def state(self, name: str) -> str:
        return self.store.get(name)["state"].removeprefix("JOB_STATE_")

    def wait(self, name: str, state: str = "") -> dict[str, Any]:
        """Wait for a state; by default for the end and its error."""

        def is_reached() -> bool:
            if state:
                return self.state(name) == state
            return self.state(name) == "SUCCEEDED" or "error" in self.store.get(name)

        self.wait_until(is_reached)
        return self.store.get(name)

    def wait_for_line(self, name: str, text: str) -> None:
        self.wait_until(lambda: text in self.texts(name, "service"))

    def wait_until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < end, self.logs.entries()
            time.sleep(0.01)

    def lines(self, name: str, task: str = CHIEF) -> list[tuple[str, str]]:
        """Return the severity and the text of a task's lines, by default the primary one's."""
        labels = {"job_id": name.rpartition("/")[2], "task_name": task}
        return [
            (entry["severity"], entry["jsonPayload"]["message"])
            for entry in self.logs.entries()
            if entry["resource"]["labels"].items() >= labels.items()
        ]

    def texts(self, name: str, task: str = CHIEF) -> list[str]:
        return [text for _, text in self.lines(name, task)]


@contextlib.contextmanager
def jobs_on(backend: Backend, **timings: Any) -> Iterator[Jobs]:
    """Run jobs on a backend."""
    jobs = Jobs(backend, **timings)
    with contextlib.closing(jobs.logs), contextlib.closing(jobs.runner):
        yield jobs


def pool(*command: str, count: int = 1, image: str = "image", **container: Any) -> dict[str, Any]:
    """Return a worker pool."""
    return {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": str(count),
        "containerSpec": {"imageUri": image, "command": list(command), **container},
    }


def custom_job(*pools: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"displayName": "job", "jobSpec": {"workerPoolSpecs": list(pools), **spec}}


def tuning_job(
    *parameters: dict[str, Any], trials: int, at_once: int = 1, pools: Any = (), **job: Any
) -> dict[str, Any]:
    """Return a tuning job that goes through a grid and minimizes ``loss``."""
    study = {
        "metrics": [{"metricId": "loss", "goal": "MINIMIZE"}],
        "parameters": list(parameters),
        "algorithm": "GRID_SEARCH",
    }
    output = {"outputUriPrefix": "gs://bucket/job"}
    return {
        "displayName": "tuning",
        "studySpec": study,
        "maxTrialCount": trials,
        "parallelTrialCount": at_once,
        "trialJobSpec": {"workerPoolSpecs": list(pools), "baseOutputDirectory": output},
        **job,
    }
