"""Docker and a registry for tests, started from nothing.

One engine serves a whole machine. A *keeper*, this module as a process, holds it; each user holds a
shared lock, which the system releases when they end. When the keeper gets that lock exclusively, it
ends everything.

It needs Linux, root and Debian's packages `docker.io docker-registry mmdebstrap`, which are
installed with DISTLAUNCH_TEST_ENGINE=1.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import base_image

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


HOME = Path(tempfile.gettempdir()) / f"distlaunch-engine-{os.getuid()}"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "distlaunch-tests"
PROGRAMS = {
    "dockerd": "docker.io",
    "docker-registry": "docker-registry",
    "mmdebstrap": "mmdebstrap",
}
# Debian's own come first: another docker client may be before them.
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
DOCKER = "/usr/bin/docker"
TIMEOUT = 180  # seconds until it runs
_PR_SET_CHILD_SUBREAPER = 36

# Files in HOME; valid for as long as the lock on KEEPER is taken.
IN_USE, KEEPER, STARTING = "in-use", "keeper", "starting"
SETTINGS, LOG, WORK = "engine.json", "engine.log", "work"


class NoEngineError(Exception):
    """There can be no engine on this machine, or it did not start."""


@dataclass(frozen=True)
class Engine:
    """Docker's socket, a registry (``localhost:PORT``), and an image in it with Python 3.11."""

    socket: str
    registry: str
    base: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which docker's clients find it."""
        return {"DOCKER_HOST": self.socket}

    def repository(self, name: str = "test") -> str:
        """Return a new repository in the registry."""
        return f"{self.registry}/{name}-{uuid.uuid4().hex[:12]}"

    def docker(self, *words: str, **kwargs) -> subprocess.CompletedProcess[str]:
        """Run Debian's `docker` on this engine."""
        return subprocess.run(
            [DOCKER, "--host", self.socket, *words],
            capture_output=True,
            text=True,
            check=False,
            **kwargs,
        )


@contextlib.contextmanager
def running(*, install: bool = False) -> Iterator[Engine]:
    """Use the machine's engine; it is started by its first user and ends with its last.

    What is missing is installed, as root, or NoEngineError is raised.
    """
    HOME.mkdir(mode=0o700, exist_ok=True)
    with (HOME / IN_USE).open("w") as use:
        with installing():
            _prepare(install=install)
            fcntl.flock(use, fcntl.LOCK_SH)
            engine = _running_engine() or _started()
        yield engine


@contextlib.contextmanager
def installing() -> Iterator[None]:
    """Keep others from installing packages: apt lets in no second."""
    HOME.mkdir(mode=0o700, exist_ok=True)
    with (HOME / STARTING).open("w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        yield


def is_required() -> bool:
    """Whether a missing engine is a failure here, as it is in CI."""
    return os.environ.get("DISTLAUNCH_TEST_ENGINE") == "1"


def _prepare(*, install: bool) -> None:
    if sys.platform != "linux":
        raise NoEngineError("needs Linux")
    if os.getuid() != 0:
        raise NoEngineError("needs root")
    missing = [package for name, package in PROGRAMS.items() if not shutil.which(name, path=PATH)]
    if missing and (problem := install_packages(missing, is_allowed=install)):
        raise NoEngineError(problem)


def install_packages(packages: Sequence[str], *, is_allowed: bool) -> str:
    """Install packages of Debian as root; return what is wrong if that fails or is not allowed."""
    command = ["apt-get", "install", "--no-install-recommends", "--yes", *packages]
    if not is_allowed or not shutil.which("apt-get"):
        return f"needs Debian's packages: {' '.join(command)}"
    # Debian's packages would start daemons of their own.
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for words in (["apt-get", "update"], command):
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
        if done.returncode:
            return f"{' '.join(words)} failed: {done.stderr.strip()[-500:]}"
    return ""


def _running_engine() -> Engine | None:
    """Return the engine that runs, if one does."""
    if not _is_kept():
        return None
    try:
        return Engine(**json.loads((HOME / SETTINGS).read_text()))
    except FileNotFoundError:
        return None


def _is_kept() -> bool:
    with (HOME / KEEPER).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _started() -> Engine:
    """Start a keeper and wait until it has an engine."""
    with (HOME / LOG).open("w") as log:
        keeper = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    until = time.monotonic() + TIMEOUT
    while time.monotonic() < until:
        if keeper.poll() is not None:
            break
        if engine := _running_engine():
            # A keeper outlives its starter, who is not to wait for it.
            keeper.returncode = 0
            return engine
        time.sleep(0.05)
    keeper.kill()
    raise NoEngineError(f"did not start: {(HOME / LOG).read_text()[-1000:]}")


def _keep() -> None:
    """Hold an engine until it has no users."""
    # containerd leaves the shims of containers to the nearest process that adopts orphans. That
    # must not be a test's, which kills what it has adopted when its local run ends.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with (HOME / KEEPER).open("a") as kept, (HOME / IN_USE).open("w") as use:
        fcntl.flock(kept, fcntl.LOCK_EX)
        (HOME / SETTINGS).unlink(missing_ok=True)
        _take_away(HOME / WORK)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        try:
            with contextlib.ExitStack() as stack:
                engine = _start_all(HOME / WORK, stack)
                half = HOME / f"{SETTINGS}.half"
                half.write_text(json.dumps(asdict(engine)))
                half.rename(HOME / SETTINGS)
                _wait_until_unused(use)
                (HOME / SETTINGS).unlink()
        finally:
            _take_away(HOME / WORK)


def _wait_until_unused(use) -> None:
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(use, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.3)


def _start_all(work: Path, stack: contextlib.ExitStack) -> Engine:
    work.mkdir()
    layer = base_image.layer(CACHE)
    port = stack.enter_context(serve_registry(work / "registry"))
    unix = work / "docker.sock"
    command = ["dockerd", "-H", f"unix://{unix}", "--data-root", str(work / "docker")]
    command += ["--exec-root", str(work / "exec"), "--pidfile", str(work / "docker.pid")]
    command += ["--log-level", "warn"]
    daemon = stack.enter_context(_process(command))
    base = base_image.push(layer, f"localhost:{port}")
    _wait_for(str(unix), daemon)
    return Engine(f"unix://{unix}", f"localhost:{port}", base)


@contextlib.contextmanager
def serve_registry(work: Path, **settings: object) -> Iterator[int]:
    """Start Docker's registry with its files in a new folder, and yield its port."""
    work.mkdir()
    port = _free_port()
    settings |= {
        "version": 0.1,
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": f"{work}/data"}, "delete": {"enabled": True}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    (work / "config.yml").write_text(json.dumps(settings))
    with _process(["docker-registry", "serve", f"{work}/config.yml"]) as registry:
        _wait_for(("127.0.0.1", port), registry)
        yield port


@contextlib.contextmanager
def _process(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that the system ends with us."""
    process = subprocess.Popen(
        ["/usr/bin/setpriv", "--pdeathsig", "TERM", *command],
        env=os.environ | {"PATH": PATH},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(address: str | tuple[str, int], daemon: subprocess.Popen[bytes]) -> None:
    """Wait until a process listens at an address."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    for _ in range(int(TIMEOUT / 0.05)):
        if daemon.poll() is not None:
            raise SystemExit(f"{daemon.args} ended with code {daemon.returncode}")
        with socket.socket(family) as probe:
            if probe.connect_ex(address) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"nothing listens at {address}")


def _take_away(work: Path) -> None:
    """End what still runs in a folder, take its mounts away, and the folder."""
    if not work.exists():
        return
    for process in _processes_of(work):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    for _ in range(100):
        if not _processes_of(work):
            break
        time.sleep(0.05)
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{work}/")), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False)
    shutil.rmtree(work)


def _processes_of(work: Path) -> list[int]:
    """Return the processes whose command line names the folder: engine, containerd and shims."""
    processes = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes()
            if f"{work}/".encode() in words and int(folder.name) != os.getpid():
                processes.append(int(folder.name))
    return processes


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    _keep()
