"""The emulator's service without a runner: its jobs stay QUEUED until they are cancelled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import requests

from distlaunch.emulator.buckets import BucketService
from distlaunch.emulator.faults import FaultCounter, Faults
from distlaunch.emulator.http import Server
from distlaunch.emulator.jobs import JobService
from distlaunch.emulator.logs import LogService, LogStore
from distlaunch.emulator.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

JOBS = "/v1/projects/my-project/locations/us-central1/customJobs"
TUNING_JOBS = "/v1/projects/my-project/locations/us-central1/hyperparameterTuningJobs"


@dataclass
class IdleRunner:
    """Runs nothing."""

    store: Store

    def start(self, name: str) -> None:
        assert self.store.get(name)["state"] == "JOB_STATE_QUEUED"

    def cancel(self, name: str) -> None:
        self.store.update(name, state="JOB_STATE_CANCELLED", endTime=self.store.now())


@dataclass
class Service:
    """A server with the emulator's services, and their data."""

    url: str
    folder: Path
    store: Store
    logs: LogStore
    lines: list[str] = field(default_factory=list)

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> requests.Response:
        """Send a request with a JSON body."""
        return requests.request(method, self.url + path, json=body, timeout=20, **options)

    def error(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, str]:
        """Send a request that is refused; return the code and the message."""
        error = self.call(method, path, body, **options).json()["error"]
        return error["code"], error["message"]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Start the service with faults, in the language of `--faults`."""
    servers: list[Server] = []
    buckets = BucketService(tmp_path, "europe-west4")

    def start(faults: str = "") -> Service:
        store, logs = Store(), LogStore()
        lines: list[str] = []
        servers.append(Server(0, FaultCounter(Faults.parse(faults)), lines.append))
        jobs = JobService(store, logs, IdleRunner(store))
        servers[-1].start([*jobs.routes(), *LogService(logs).routes(), *buckets.routes()])
        return Service(servers[-1].url, tmp_path, store, logs, lines)

    yield start
    for server in servers:
        server.close()
    buckets.close()


@pytest.fixture
def service(serve: Callable[..., Service]) -> Service:
    return serve()


@pytest.fixture
def custom_job() -> dict[str, Any]:
    """A valid job: a chief and two workers."""
    machine = {"machineType": "n1-standard-8"}
    container = {"imageUri": "us-docker.pkg.dev/my-project/training/digits:1"}
    return {
        "displayName": "digits",
        "jobSpec": {
            "workerPoolSpecs": [
                {"machineSpec": machine, "replicaCount": "1", "containerSpec": container},
                {"machineSpec": machine, "replicaCount": "2", "containerSpec": container},
            ]
        },
    }


@pytest.fixture
def tuning_job(custom_job: dict[str, Any]) -> dict[str, Any]:
    """A valid tuning job."""
    return {
        "displayName": "digits",
        "maxTrialCount": 4,
        "parallelTrialCount": 2,
        "studySpec": {
            "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
            "parameters": [
                {
                    "parameterId": "rate",
                    "doubleValueSpec": {"minValue": 0.001, "maxValue": 0.1},
                    "scaleType": "UNIT_LOG_SCALE",
                },
                {"parameterId": "units", "discreteValueSpec": {"values": [16, 32]}},
            ],
        },
        "trialJobSpec": custom_job["jobSpec"],
    }
