"""An emulator whose jobs stay QUEUED until they are cancelled."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import requests
from failing_calls import FailingEmulator

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NUMBERS = itertools.count()  # of projects


@dataclass
class Service:
    """A running emulator, and a project in which there are no jobs."""

    url: str
    storage: Path
    project: str

    def jobs(self, collection: str = "customJobs", version: str = "v1") -> str:
        """Return the path of the project's jobs."""
        return f"/{version}/projects/{self.project}/locations/us-central1/{collection}"

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> requests.Response:
        """Send a request with a JSON body."""
        return requests.request(method, self.url + path, json=body, timeout=20, **options)

    def error(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, str]:
        """Send a request that is refused; return the code and the message."""
        error = self.call(method, path, body, **options).json()["error"]
        return error["code"], error["message"]


@pytest.fixture(scope="session")
def waiting_emulator(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[FailingEmulator]:
    storage, faults = tmp_path_factory.mktemp("storage"), "slow-states:3600"
    with FailingEmulator(storage=storage, region="europe-west4", faults=faults) as emulator:
        yield emulator


@pytest.fixture
def service(waiting_emulator: FailingEmulator) -> Service:
    emulator = waiting_emulator
    assert emulator.storage
    return Service(emulator.url, emulator.storage, f"project-{next(NUMBERS)}")
