"""The emulator as a whole: what listens, what keeps, and what runs."""

from __future__ import annotations

import shutil
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from distlaunch.emulator.faults import Faults, FaultyCalls
from distlaunch.emulator.logs import Logs
from distlaunch.emulator.run.life import Lives, Pace
from distlaunch.emulator.service.buckets import Buckets
from distlaunch.emulator.service.job_service import JobService
from distlaunch.emulator.service.log_service import LogService
from distlaunch.emulator.service.parsing import preload
from distlaunch.emulator.service.project_routes import ProjectRoutes
from distlaunch.emulator.service.routes import Routes
from distlaunch.emulator.service.server import Server
from distlaunch.emulator.service.storage_service import StorageService
from distlaunch.emulator.store import Store
from distlaunch.errors import DistlaunchError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from distlaunch.emulator.run.running import Machines

RunWith = Literal["docker", "process"]


class Emulator:
    """Vertex AI's job service, with logs and storage, while it is entered.

    Parameters
    ----------
    port
        Where it listens on 127.0.0.1; 0 for any port that is free.
    run_with
        What replicas are: containers of a Docker engine, or processes here.
    project_dir
        Where processes run.
    storage
        The folder of its buckets; without one they are gone when it ends.
    region
        Where its buckets are said to be.
    faults
        What is to go wrong.
    tell
        Gets a line for each request.

    Raises
    ------
    DistlaunchError
        If the port, the folder or the engine cannot be had.
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
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._run_with = run_with
        self._project_dir = project_dir
        self._storage = storage
        self._region = region
        self._faults = faults or Faults()
        self._port = port
        self._tell = tell
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            server = stack.enter_context(Server(self._port, FaultyCalls(self._faults), self._tell))
            self.url = server.url
            self.storage = self._folder(stack)
            self._start(server, stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, server: Server, stack: ExitStack) -> None:
        faults = self._faults
        store = Store()
        logs = Logs()
        lives = Lives(store, self._machines(), logs, pace=_pace(faults))
        stack.callback(lives.close)
        server.start(
            Routes(
                JobService(store, logs, lives, faults.lacks.limits),
                LogService(logs),
                StorageService(Buckets(self.storage), self._region, faults.lacks),
                ProjectRoutes(faults.lacks),
            )
        )
        threading.Thread(target=preload, daemon=True).start()

    def _machines(self) -> Machines:
        if self._run_with == "docker":
            from distlaunch.emulator.run.docker import DockerMachines

            return DockerMachines(self.storage)
        from distlaunch.emulator.run.process import ProcessMachines

        if not self._project_dir.is_dir():
            raise UsageError(
                f"--project-dir {self._project_dir}: no such folder; "
                "give the one with the job's program"
            )
        return ProcessMachines(self._project_dir.resolve(), self.url)

    def _folder(self, stack: ExitStack) -> Path:
        if self._storage is None:
            made = Path(tempfile.mkdtemp(prefix="distlaunch-storage-"))
            stack.callback(shutil.rmtree, made, ignore_errors=True)
            return made
        try:
            self._storage.mkdir(parents=True, exist_ok=True)
            return self._storage.resolve()
        except OSError as problem:
            why = (problem.strerror or str(problem)).lower()
            raise DistlaunchError(
                f"--storage {self._storage}: cannot be a folder ({why}); choose another"
            ) from None


def _pace(faults: Faults) -> Pace:
    if faults.slow_states is None:
        return Pace(expires=faults.expires)
    return Pace(queued=faults.slow_states, pending=faults.slow_states, expires=faults.expires)
