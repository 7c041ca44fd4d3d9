"""Replicas as processes on this machine."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote
from urllib.request import ProxyHandler, build_opener

from distlaunch.emulator.run.keeper import BOOT, KILL
from distlaunch.emulator.run.running import CannotRun, Ended
from distlaunch.emulator.run.surroundings import environment, package_command
from distlaunch.errors import DistlaunchError
from distlaunch.local.lines import Lines
from distlaunch.local.ports import HOST, HeldPorts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from distlaunch.emulator.run.proxy import Proxy
    from distlaunch.emulator.run.running import Replica, Severity, Work, Write

_PACKAGE_PARENT = str(Path(__file__).parents[3])
_PIECE = 1 << 16
_NO_PROXY = build_opener(ProxyHandler({}))
# What only the job may set: the emulator may have been started inside of a job, or by one.
_NOT_INHERITED = ("TF_CONFIG", "CLUSTER_SPEC", "AIP_", "CLOUD_ML_", "DISTLAUNCH_")


class ProcessMachines:
    """Runs replicas as processes in the project's folder, with ports on loopback.

    The container's command is run as it is, with the emulator's Python first on PATH; without a
    command it is ``python -m MODULE``, the module of the project's distlaunch.yaml. Job folders
    stay ``gs://…``: TensorFlow and Google's storage client are led to the emulator's storage. There
    is no ``/gcs``.

    Parameters
    ----------
    project_dir
        Where they run.
    endpoint
        The emulator's own ``http://127.0.0.1:PORT``, where its storage is found.
    """

    def __init__(self, project_dir: Path, endpoint: str) -> None:
        self._project_dir = project_dir
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._proxy: Proxy | None = None
        self._sites: set[ProcessSite] = set()

    def site(self, work: Work, is_wanted: Callable[[], bool]) -> ProcessSite:  # noqa: ARG002
        with self._lock:
            if self._proxy is None:
                from distlaunch.emulator.run.proxy import Proxy

                self._proxy = Proxy(self._endpoint)
        more = self._proxy.environment | {"STORAGE_EMULATOR_HOST": self._endpoint}
        made = ProcessSite(work, self._project_dir, self._endpoint, more, self._sites.discard)
        self._sites.add(made)
        return made

    def close(self) -> None:
        for site in list(self._sites):
            site.close()
        if self._proxy:
            self._proxy.close()


class ProcessSite:
    """One job's ports and scratch folder.

    Parameters
    ----------
    more
        Variables that the machines themselves set.
    gone
        Is told when the site is closed.
    """

    def __init__(
        self,
        work: Work,
        project_dir: Path,
        endpoint: str,
        more: Mapping[str, str],
        gone: Callable[[ProcessSite], None],
    ) -> None:
        if not project_dir.is_dir():
            raise CannotRun(f"{project_dir}: no such folder; give the emulator --project-dir")
        self._work = work
        self._project_dir = project_dir
        self._endpoint = endpoint
        self._more = more
        self._gone = gone
        self._scratch = Path(tempfile.mkdtemp(prefix="distlaunch-emulator-"))
        try:
            with HeldPorts(len(work.replicas)) as ports:
                self._addresses = {
                    replica.task: f"{HOST}:{port}"
                    for replica, port in zip(work.replicas, ports.numbers, strict=True)
                }
        except DistlaunchError as problem:
            shutil.rmtree(self._scratch)
            raise CannotRun(str(problem)) from None
        self._running: list[Process] = []

    def start(self, replica: Replica, write: Write, ended: Callable[[Ended], None]) -> Process:
        words = [*self._command(replica), *replica.args]
        started = Process(words, self._project_dir, self._environment(replica), write, ended)
        self._running.append(started)
        return started

    def measurements(self) -> str:
        try:
            return self._metric_file(self._work.replicas[0]).read_text("utf-8", "replace")
        except OSError:
            return ""

    def close(self) -> None:
        for each in self._running:
            each.stop(0.0)
        for each in self._running:
            each.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._gone(self)

    def _command(self, replica: Replica) -> tuple[str, ...]:
        if replica.command:
            return replica.command
        if replica.module is None:
            return ("python", "-m", _module_of(self._project_dir))
        files = [self._fetched(package) for package in replica.packages]
        folder = str(self._scratch / replica.name / "packages")
        return package_command(replica.module, files, folder)

    def _fetched(self, package: str) -> str:
        """Copy a package from the emulator's storage; what is not there pip will complain of."""
        bucket, _, name = package.removeprefix("gs://").partition("/")
        path = self._scratch / Path(name).name
        url = f"{self._endpoint}/storage/v1/b/{bucket}/o/{quote(name, safe='')}?alt=media"
        with contextlib.suppress(OSError), _NO_PROXY.open(url) as answer:
            path.write_bytes(answer.read())
        return str(path)

    def _environment(self, replica: Replica) -> dict[str, str]:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)
        }
        metric_file = self._metric_file(replica)
        metric_file.parent.mkdir(exist_ok=True)
        theirs = environment(
            self._work,
            replica.task,
            self._addresses,
            job_dir=self._work.job_dir,
            metric_file=str(metric_file),
        )
        merged = {"PYTHONUNBUFFERED": "1", **inherited, **self._more, **theirs, **replica.env}
        folders = [str(Path(sys.executable).parent), merged.get("PATH", os.defpath)]
        return merged | {"PATH": os.pathsep.join(folders)}

    def _metric_file(self, replica: Replica) -> Path:
        return self._scratch / replica.name / "output.metrics"


class Process:
    """One replica: a keeper, which holds its program, and a thread that reads what they write."""

    def __init__(
        self,
        words: list[str],
        folder: Path,
        env: Mapping[str, str],
        write: Write,
        ended: Callable[[Ended], None],
    ) -> None:
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-c", BOOT, _PACKAGE_PARENT, *words],
            cwd=folder,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._timer: threading.Timer | None = None
        self._reader = threading.Thread(target=self._read, args=(write, ended), daemon=True)
        self._reader.start()

    def stop(self, grace: float) -> None:
        if grace:
            self._tell(b"t")
            self._timer = threading.Timer(grace, self._tell, [KILL])
            self._timer.daemon = True
            self._timer.start()
        else:
            self._tell(KILL)

    def wait(self) -> None:
        """Wait until nothing of it is left, and all is read."""
        self._reader.join()

    def _tell(self, what: bytes) -> None:
        assert self._keeper.stdin  # noqa: S101 - it is a pipe
        with contextlib.suppress(BrokenPipeError, ValueError):  # it has ended
            self._keeper.stdin.write(what)

    def _read(self, write: Write, ended: Callable[[Ended], None]) -> None:
        with selectors.DefaultSelector() as selector, self._keeper:
            for stream, severity in self._streams():
                selector.register(stream, selectors.EVENT_READ, (Lines(), severity))
            while selector.get_map():
                for key, _ in selector.select():
                    lines, severity = key.data
                    data = os.read(key.fd, _PIECE)
                    _write_all(lines.feed(data) if data else lines.close(), severity, write)
                    if not data:
                        selector.unregister(key.fileobj)
            code = self._keeper.wait()
            if self._timer:
                self._timer.cancel()
        ended(Ended(code if code >= 0 else 128 - code))

    def _streams(self) -> list[tuple[int, Severity]]:
        assert self._keeper.stdout  # noqa: S101 - they are pipes
        assert self._keeper.stderr  # noqa: S101
        return [(self._keeper.stdout.fileno(), "INFO"), (self._keeper.stderr.fileno(), "ERROR")]


def _write_all(lines: bytes, severity: Severity, write: Write) -> None:
    for line in lines.decode("utf-8", "replace").split("\n")[:-1]:
        write(severity, line)


def _module_of(project_dir: Path) -> str:
    """Return the module that the project's job file names, or the default."""
    import yaml

    default = "trainer.task"
    try:
        told = yaml.safe_load((project_dir / "distlaunch.yaml").read_bytes())
    except (OSError, yaml.YAMLError):
        return default
    named = told.get("module", default) if isinstance(told, dict) else default
    return str(named)
