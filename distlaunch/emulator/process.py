"""Runs replicas as processes on this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from distlaunch.emulator.job_spec import package_command, storage_path, variables
from distlaunch.emulator.replica_group import ExitStatus, LineWriter
from distlaunch.emulator.supervisor import BOOT
from distlaunch.job.model import main_words
from distlaunch.local.ports import HOST, HeldPorts
from distlaunch.local.task_plan import without_proxy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distlaunch.emulator.job_spec import Replica, Workload
    from distlaunch.emulator.replica_group import CancellationToken, OnExit, WriteLine

_PACKAGE_PARENT = str(Path(__file__).parents[2])
_CHUNK = 1 << 16
# Only the job may set these: the emulator may itself run in a job.
_NOT_INHERITED = ("TF_CONFIG", "CLUSTER_SPEC", "AIP_", "CLOUD_ML_", "DISTLAUNCH_")


@dataclass(frozen=True, slots=True)
class ProcessBackend:
    """Runs replicas as processes in the project's folder, with ports of 127.0.0.1.

    The container's command runs unchanged, with the emulator's Python first on PATH; without a
    command it is ``python -m MODULE``, the module of the project's distlaunch.yaml. Job folders are
    folders below `storage`; google-cloud-storage finds ``gs://`` URIs at `endpoint`, the emulator's
    ``http://127.0.0.1:PORT/TOKEN``.
    """

    project_dir: Path
    storage: Path
    endpoint: str

    def prepare(
        self,
        workload: Workload,
        token: CancellationToken,  # noqa: ARG002 - nothing here takes long
    ) -> ProcessEnvironment:
        return ProcessEnvironment(workload, self)

    def close(self) -> None:
        """Do nothing: supervisors leave no process behind."""


class ProcessEnvironment:
    """The ports and folders of one job."""

    def __init__(self, workload: Workload, backend: ProcessBackend) -> None:
        self._workload = workload
        self._backend = backend
        self._job_dir = workload.job_dir and str(storage_path(backend.storage, workload.job_dir))
        self._ports = HeldPorts(len(workload.replicas))
        self._ports.release()
        self._addresses = {
            replica.task: f"{HOST}:{port}"
            for replica, port in zip(workload.replicas, self._ports.numbers, strict=True)
        }
        self._scratch = Path(tempfile.mkdtemp(prefix="distlaunch-emulator-"))
        self._processes: list[ReplicaProcess] = []

    def start(self, replica: Replica, write: WriteLine, on_exit: OnExit) -> ReplicaProcess:
        argv = [*self._command(replica), *replica.args]
        env = self._environment(replica)
        process = ReplicaProcess(argv, self._backend.project_dir, env, write, on_exit)
        self._processes.append(process)
        return process

    def metrics(self) -> str:
        file = self._metric_file(self._workload.replicas[0])
        return file.read_text("utf-8", "replace") if file.exists() else ""

    def close(self) -> None:
        for process in self._processes:
            process.stop(kill=True)
        for process in self._processes:
            process.wait()
        self._ports.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _command(self, replica: Replica) -> Sequence[str]:
        if replica.command:
            return replica.command
        if replica.module is None:
            return ("python", "-m", *_project_main(self._backend.project_dir))
        files = [str(storage_path(self._backend.storage, package)) for package in replica.packages]
        return package_command(replica.module, files, f"{self._scratch}/{replica.name}-packages")

    def _environment(self, replica: Replica) -> dict[str, str]:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)
        }
        job_variables = variables(
            self._workload,
            replica,
            self._addresses,
            job_dir=self._job_dir,
            metric_file=str(self._metric_file(replica)),
        )
        common = {"PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0", **inherited}
        common["STORAGE_EMULATOR_HOST"] = self._backend.endpoint
        env = {**common, **without_proxy(common), **job_variables}
        folders = [str(Path(sys.executable).parent), env.get("PATH", os.defpath)]
        return env | {"PATH": os.pathsep.join(folders)}

    def _metric_file(self, replica: Replica) -> Path:
        return self._scratch / f"{replica.name}.metrics"


class ReplicaProcess:
    """One replica: a supervisor, which runs its program, and threads that read the output."""

    def __init__(
        self,
        argv: Sequence[str],
        work_dir: Path,
        env: Mapping[str, str],
        write: WriteLine,
        on_exit: OnExit,
    ) -> None:
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", "-c", BOOT, _PACKAGE_PARENT, *argv],
            cwd=work_dir,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        # A file descriptor that is closed during a write may be another file's by then.
        self._stdin_lock = threading.Lock()
        self._follower = threading.Thread(target=self._follow, args=(write, on_exit), daemon=True)
        self._follower.start()

    def stop(self, *, kill: bool) -> None:
        stdin = _pipe(self._supervisor.stdin)
        with self._stdin_lock, contextlib.suppress(BrokenPipeError, ValueError):  # it has ended
            if kill:
                stdin.close()
            else:
                stdin.write(b"t")

    def wait(self) -> None:
        """Wait until nothing of it is left and all output is read."""
        self._follower.join()

    def _follow(self, write: WriteLine, on_exit: OnExit) -> None:
        with self._supervisor as supervisor:
            errors = threading.Thread(
                target=_read_all,
                args=(_pipe(supervisor.stderr), LineWriter("ERROR", write)),
                daemon=True,
            )
            errors.start()
            _read_all(_pipe(supervisor.stdout), LineWriter("INFO", write))
            errors.join()
            code = supervisor.wait()
            with self._stdin_lock:
                _pipe(supervisor.stdin).close()
        on_exit(ExitStatus(code if code >= 0 else 128 - code))


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # noqa: S101 - all three are pipes
    return stream


def _read_all(stream: IO[bytes], lines: LineWriter) -> None:
    while data := stream.read(_CHUNK):
        lines.feed(data)
    lines.close()


def _project_main(project_dir: Path) -> tuple[str, ...]:
    """Return what the project's job file has after ``python -m``, or the default.

    The file isn't read as a whole job: a --config file may have its cluster.
    """
    from distlaunch.job.yaml_document import read_document

    path = project_dir / "distlaunch.yaml"
    data = read_document(path).data if path.exists() else {}
    keys = ("module", "script", "script_module")
    program = {key: str(data[key]) for key in keys if data.get(key)}
    return main_words(**program, trainer_options=data.get("trainer_options") or ())
