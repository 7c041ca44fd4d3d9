"""The emulator as a whole: its server, its jobs and what runs them."""

from __future__ import annotations

import shutil
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from distlaunch.emulator.buckets import BucketService
from distlaunch.emulator.faults import FaultCounter, Faults
from distlaunch.emulator.http import Server
from distlaunch.emulator.job_json import preload
from distlaunch.emulator.jobs import JobService
from distlaunch.emulator.log_service import LogService
from distlaunch.emulator.logs import Logs
from distlaunch.emulator.run.job_runner import JobRunner, Timings
from distlaunch.emulator.store import Store
from distlaunch.errors import DistlaunchError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from distlaunch.emulator.run.backend import Backend

RunWith = Literal["docker", "process"]


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
        If the port, the folder or Docker cannot be used.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        run_with: RunWith = "process",
        project_dir: Path = Path(),
        storage: Path | None = None,
        region: str = "us-central1",
        faults: Faults | None = None,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._run_with = run_with
        self._project_dir = project_dir
        self._storage = storage
        self._region = region
        self._faults = faults or Faults()
        self._port = port
        self._log = log
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            server = stack.enter_context(Server(self._port, FaultCounter(self._faults), self._log))
            self.url = server.url
            self.storage = self._create_storage(stack)
            self._start(server, stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, server: Server, stack: ExitStack) -> None:
        store, logs = Store(), Logs()
        runner = JobRunner(store, self._backend(), logs, timings=_timings(self._faults))
        stack.callback(runner.close)
        buckets = BucketService(self.storage, self._region)
        stack.callback(buckets.close)
        jobs = JobService(store, logs, runner)
        server.start([*jobs.routes(), *LogService(logs).routes(), *buckets.routes()])
        threading.Thread(target=preload, daemon=True).start()

    def _backend(self) -> Backend:
        if self._run_with == "docker":
            from distlaunch.emulator.run.docker import DockerBackend

            return DockerBackend(self.storage, int(self.url.rpartition(":")[2]))
        from distlaunch.emulator.run.process import ProcessBackend

        if not self._project_dir.is_dir():
            raise UsageError(
                f"--project-dir {self._project_dir}: no such folder; "
                "give the one with the job's program"
            )
        return ProcessBackend(self._project_dir.resolve(), self.storage, self.url)

    def _create_storage(self, stack: ExitStack) -> Path:
        if self._storage is None:
            folder = Path(tempfile.mkdtemp(prefix="distlaunch-storage-")).resolve()
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            return folder
        try:
            self._storage.mkdir(parents=True, exist_ok=True)
            return self._storage.resolve()
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            raise DistlaunchError(
                f"--storage {self._storage}: cannot be a folder ({reason}); choose another"
            ) from None


def _timings(faults: Faults) -> Timings:
    if faults.slow_states is None:
        return Timings(expires=faults.expires)
    return Timings(queued=faults.slow_states, pending=faults.slow_states, expires=faults.expires)
