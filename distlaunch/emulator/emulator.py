"""The emulator as a whole: its server, its jobs and what runs them."""

from __future__ import annotations

import shutil
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from distlaunch.emulator.buckets import BucketService
from distlaunch.emulator.faults import FaultCounter, Faults
from distlaunch.emulator.http import Server
from distlaunch.emulator.job_messages import preload
from distlaunch.emulator.jobs import JobService
from distlaunch.emulator.logs import LogService, LogStore
from distlaunch.emulator.run.job_runner import JobRunner, Timings
from distlaunch.emulator.store import Store
from distlaunch.errors import DistlaunchError, UsageError, os_reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from distlaunch.emulator.run.backend import Backend

RunWith = Literal["docker", "process"]


@dataclass
class Emulator:
    """Vertex AI's job service with logs and storage, from `__enter__` to `__exit__`.

    Parameters
    ----------
    port
        The port on 127.0.0.1; 0 for any free one.
    run_with
        Runs replicas as containers or as processes on this machine.
    project_dir
        Where processes run.
    storage
        The folder of the buckets; default: a temporary one.
    region
        The location of the buckets.
    faults
        Errors to inject.
    log
        Called with a line for each request.

    Raises
    ------
    DistlaunchError
        On `__enter__`, if the port, the folder or Docker cannot be used.
    """

    port: int = 0
    run_with: RunWith = "process"
    project_dir: Path = Path()
    storage: Path | None = None
    region: str = "us-central1"
    faults: Faults = field(default_factory=Faults)
    log: Callable[[str], None] = lambda _: None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            server = stack.enter_context(Server(self.port, FaultCounter(self.faults), self.log))
            self.url = server.url
            self.storage = self._create_storage(stack)
            store, logs = Store(), LogStore()
            backend = self._create_backend(self.storage)
            runner = JobRunner(store, backend, logs, timings=_timings(self.faults))
            stack.callback(runner.close)
            buckets = BucketService(self.storage, self.region)
            stack.callback(buckets.close)
            jobs = JobService(store, logs, runner)
            server.start([*jobs.routes(), *LogService(logs).routes(), *buckets.routes()])
            threading.Thread(target=preload, daemon=True).start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _create_backend(self, storage: Path) -> Backend:
        if self.run_with == "docker":
            from distlaunch.emulator.run.docker import DockerBackend

            return DockerBackend(storage, self.url)
        from distlaunch.emulator.run.process import ProcessBackend

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


def _timings(faults: Faults) -> Timings:
    usual = Timings(expires=faults.expires)
    if faults.slow_states is None:
        return usual
    return replace(usual, queued=faults.slow_states, pending=faults.slow_states)
