"""The emulator's service on its own: its jobs are taken in and not run."""

from __future__ import annotations

import http.client
import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from distlaunch.emulator.faults import Faults, FaultyCalls
from distlaunch.emulator.logs import Logs
from distlaunch.emulator.service.buckets import Buckets
from distlaunch.emulator.service.job_service import JobService
from distlaunch.emulator.service.log_service import LogService
from distlaunch.emulator.service.project_routes import ProjectRoutes
from distlaunch.emulator.service.routes import Routes
from distlaunch.emulator.service.server import Server
from distlaunch.emulator.service.storage_service import StorageService
from distlaunch.emulator.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

JSON = {"Content-Type": "application/json"}
PARENT = "projects/my-project/locations/us-central1"


@dataclass
class Resting:
    """Jobs that stay QUEUED until they are cancelled."""

    store: Store

    def start(self, name: str) -> None:
        assert self.store.get(name)["state"] == "JOB_STATE_QUEUED"

    def cancel(self, name: str) -> None:
        self.store.update(name, state="JOB_STATE_CANCELLED", endTime=self.store.now())


@dataclass(frozen=True)
class Reply:
    """What was answered."""

    status: int
    headers: http.client.HTTPMessage
    content: bytes

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.content)

    @property
    def error(self) -> dict[str, Any]:
        return self.json["error"]


@dataclass
class Service:
    """The service, and what it keeps."""

    url: str
    folder: Path
    store: Store
    logs: Logs
    told: list[str] = field(default_factory=list)

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        """Send a request of its own connection; a body that is no bytes is sent as JSON."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=20)
        content, headers = body, headers or {}
        if not isinstance(body, bytes | None):
            content, headers = json.dumps(body).encode(), {**JSON, **headers}
        try:
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            return Reply(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def create(self, job: dict[str, Any], collection: str = "customJobs") -> Reply:
        return self.call("POST", f"/v1/{PARENT}/{collection}", job)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Start the service; faults as `--faults` takes them."""
    with ExitStack() as stack:

        def start(faults: str = "") -> Service:
            read = Faults.parse(faults)
            store, logs = Store(), Logs()
            told: list[str] = []
            server = stack.enter_context(Server(0, FaultyCalls(read), told.append))
            folder = tmp_path / "storage"
            folder.mkdir(exist_ok=True)
            storage = StorageService(Buckets(folder), "europe-west4", read.lacks)
            jobs = JobService(store, logs, Resting(store), read.lacks.limits)
            project = ProjectRoutes(read.lacks)
            server.start(Routes(jobs, LogService(logs), storage, project))
            return Service(server.url, folder.resolve(), store, logs, told)

        yield start


@pytest.fixture
def service(serve: Callable[..., Service]) -> Service:
    return serve()


@pytest.fixture
def custom_job() -> dict[str, Any]:
    """A job that Vertex AI takes: a chief and two workers."""
    container = {
        "imageUri": "us-docker.pkg.dev/my-project/training/digits:1",
        "args": ["--epochs=5"],
    }
    machine = {"machineType": "n1-standard-8"}
    return {
        "displayName": "digits",
        "jobSpec": {
            "workerPoolSpecs": [
                {"machineSpec": machine, "replicaCount": "1", "containerSpec": container},
                {"machineSpec": machine, "replicaCount": "2", "containerSpec": container},
            ],
            "baseOutputDirectory": {"outputUriPrefix": "gs://my-bucket/digits/1"},
        },
    }


@pytest.fixture
def tuning_job(custom_job: dict[str, Any]) -> dict[str, Any]:
    """A tuning job that Vertex AI takes."""
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
