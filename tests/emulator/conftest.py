"""An emulator whose jobs stay QUEUED until they are cancelled."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import requests

from distlaunch.emulator.emulator import Emulator
from distlaunch.emulator.faults import Faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


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
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Service]]:
    """Start an emulator with faults, in the language of `--faults`, or use a running one."""
    with ExitStack() as stack:
        emulators: dict[str, Emulator] = {}
        numbers = itertools.count()

        def start(faults: str = "") -> Service:
            if faults not in emulators:
                storage = tmp_path_factory.mktemp("storage")
                both = Faults(f"slow-states:3600,{faults}")
                emulator = Emulator(storage=storage, region="europe-west4", faults=both)
                emulators[faults] = stack.enter_context(emulator)
            emulator = emulators[faults]
            return Service(emulator.url, emulator.storage, f"project-{next(numbers)}")

        yield start


@pytest.fixture
def service(serve: Callable[..., Service]) -> Service:
    return serve()
