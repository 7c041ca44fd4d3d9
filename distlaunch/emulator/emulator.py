"""The emulator as a whole: its server, its jobs and what runs them."""

from __future__ import annotations

import shutil
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from distlaunch.emulator.buckets import BucketService
from distlaunch.emulator.http import Server
from distlaunch.emulator.job_runner import JobRunner, read_faults
from distlaunch.emulator.job_service import JobService, message_types
from distlaunch.emulator.logs import LogStore
from distlaunch.emulator.store import Store
from distlaunch.errors import DistlaunchError, UsageError, os_reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from distlaunch.emulator.http import Route
    from distlaunch.emulator.replica_group import Backend

RunWith = Literal["docker", "process"]


@dataclass
class Emulator:
    """Vertex AI's job service with logs and storage, from `__enter__` to `__exit__`.

    DistlaunchError is raised on `__enter__` if the port, a folder or Docker cannot be used.
    """

    port: int = 0  # on 127.0.0.1; 0 for any free one
    run_with: RunWith = "process"  # what replicas are run as
    project_dir: Path = Path()  # where processes run
    storage: Path | None = None  # the folder of the buckets; default: a temporary one
    region: str = "us-central1"  # the location of the buckets
    faults: str = ""  # as --faults lists them; UsageError is raised for what is not a fault
    is_open: bool = False  # whether every user of this machine may call it, without a token
    log: Callable[[str], None] = lambda _: None  # called with a line for each request

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            timings = read_faults(self.faults)
            server = Server(self.port, self.log, is_open=self.is_open)
            stack.callback(server.close)
            self.url = server.url
            self.storage = self._create_storage(stack)
            store, logs = Store(), LogStore()
            stack.callback(logs.close)
            backend = self._create_backend(self.storage)
            runner = JobRunner(store, backend, logs, timings)
            stack.callback(runner.close)
            buckets = BucketService(self.storage, self.region)
            stack.callback(buckets.close)
            jobs = JobService(store, logs, runner)
            server.start(self.routes(jobs, logs, buckets))
            threading.Thread(target=message_types, daemon=True).start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def routes(self, *services: JobService | LogStore | BucketService) -> list[Route]:
        """Return the API methods of the services; tests have some of their calls fail."""
        return [route for service in services for route in service.routes()]

    def _create_backend(self, storage: Path) -> Backend:
        if self.run_with == "docker":
            from distlaunch.emulator.docker import DockerBackend

            return DockerBackend(storage, self.url)
        from distlaunch.emulator.process import ProcessBackend

        if not self.project_dir.is_dir():
            raise UsageError(
                f"--project-dir {self.project_dir}: no such folder; "
                "give the one with the job's program"
            )
        return ProcessBackend(self.project_dir.resolve(), storage, self.url)

    def _create_storage(self, stack: ExitStack) -> Path:
        if self.storage is None:
            folder = Path(tempfile.mkdtemp(prefix="distlaunch-storage-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            return folder.resolve()
        try:
            self.storage.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise DistlaunchError(
                f"--storage {self.storage}: cannot be a folder ({os_reason(problem)}); "
                "choose another"
            ) from None
        return self.storage.resolve()
