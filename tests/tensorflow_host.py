"""A process that has imported modules once and forks the commands that tests run.

Python and distlaunch take half a second of a core to start, TensorFlow in a host of `distlaunch
local` some seconds more. Here a command and its host are forks of one process; everything after
the imports is real, the interpreter's exit too, in which TensorFlow waits for its peers. Tests of
starting, streams and signals run their own processes instead.

    this process ── a fork for each command: the launcher ── a fork that waits: its next host
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

# What takes a command long to import, without threads, which cannot be forked.
COMMAND_IMPORTS = (
    "click",
    "jinja2",
    "pydantic",
    "requests",
    "yaml",
    "google.auth.transport.requests",
)

LIMIT_SECONDS = 1500 if os.environ.get("DISTLAUNCH_TEST_LAWS") else 300
MOST_BYTES, MOST_FILES = 1 << 20, 64


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


class PythonHost:
    """Runs Python modules in forks of a process that has imported others."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control

    def run(self, module: str, *arguments: str, cwd: Path, env: Mapping[str, str]) -> Result:
        """Do what ``python -m module arguments`` does; killed after LIMIT_SECONDS."""
        mask = os.umask(0)
        os.umask(mask)
        argv = [module, *arguments]
        command = {"argv": argv, "cwd": str(cwd), "env": dict(env), "umask": mask}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            _send(self._control, command, [out.fileno(), err.fileno()])
            code = json.loads(self._control.recv(MOST_BYTES))
            return Result(code, _text(out), _text(err))


@contextlib.contextmanager
def running(*imports: str, **environment: str) -> Iterator[PythonHost]:
    """Start the process with its imports, which see these variables; it ends with the block."""
    from distlaunch.local.host import WITHOUT_THREADS

    ours, theirs = _socket_pair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno()), ",".join(WITHOUT_THREADS), *imports],
            # A process with threads cannot fork.
            env=os.environ | environment | WITHOUT_THREADS,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    with ours:
        yield PythonHost(ours)
    process.wait()


def _text(file: Any) -> str:
    file.seek(0)
    return file.read().decode()


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _send(control: socket.socket, command: object, files: list[int]) -> None:
    socket.send_fds(control, [json.dumps(command).encode()], files)


def _receive(control: socket.socket) -> tuple[Any, list[int]]:
    data, files, _, _ = socket.recv_fds(control, MOST_BYTES, MOST_FILES)
    return (json.loads(data) if data else None), files


def _serve(
    control: socket.socket, without_threads: str, imports: list[str]
) -> Callable[[], None] | None:
    """Fork for every command until the other end is closed; return what a fork is to run."""
    for name in imports:
        importlib.import_module(name)
    for name in without_threads.split(","):
        del os.environ[name]
    assert threading.active_count() == 1
    gc.freeze()  # at its exit, a fork would take a second to collect what it never used
    while True:
        command, files = _receive(control)
        if command is None:
            return None
        child = os.fork()
        if not child:
            control.close()
            _settle(*files, command["env"])
            return partial(_run_module, command)
        for file in files:
            os.close(file)
        control.send(json.dumps(_wait(child, LIMIT_SECONDS)).encode())


def _wait(child: int, limit: float) -> int:
    until = time.monotonic() + limit
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.02)


def _settle(out: int, err: int, env: Mapping[str, str]) -> None:
    """Give this fork a session, streams, signals and an environment of its own."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(out, 1)
    os.dup2(err, 2)
    for file in {out, err} - {1, 2}:
        os.close(file)
    os.environ.clear()
    os.environ.update(env)


def _run_module(command: dict[str, Any]) -> None:
    """Do what ``python -m`` does; the host of a launcher becomes a fork of this process."""
    if "tensorflow" in sys.modules:
        from distlaunch.local import host_process

        ours, theirs = _socket_pair()
        if not os.fork():
            ours.close()
            _fork_hosts(theirs)()
            return
        theirs.close()
        host_process.start_host = partial(_start_host, ours)
    os.umask(command["umask"])
    os.chdir(command["cwd"])
    sys.argv = command["argv"]
    sys.path[0] = command["cwd"]
    runpy.run_module(command["argv"][0], run_name="__main__", alter_sys=True)


def _start_host(
    forking: socket.socket, control: int, pipes: list[int], env: Mapping[str, str], log: Any
) -> _Host:
    """Replace `host_process.start_host`."""
    files = [control, log.fileno(), *pipes]
    _send(forking, {"files": files, "env": dict(env), "cwd": os.getcwd()}, files)  # noqa: PTH109
    return _Host(json.loads(forking.recv(MOST_BYTES)))


def _fork_hosts(forking: socket.socket) -> Callable[[], None]:
    """Fork a host for every message until the launcher ends; return what a host is to run.

    It is forked twice, so that it is adopted by the launcher, as a host is the launcher's child.
    """
    from distlaunch.local import host

    while True:
        command, files = _receive(forking)
        if command is None:
            os._exit(0)
        reading, writing = os.pipe()
        between = os.fork()
        if not between:
            child = os.fork()
            if child:
                os.write(writing, str(child).encode())
                os._exit(0)
            for file in (forking.fileno(), reading, writing):
                os.close(file)
            forking.detach()
            _take_numbers(files, command["files"])
            control, log = command["files"][:2]
            os.chdir(command["cwd"])
            _settle(os.dup(log), log, command["env"])
            sys.argv = ["-c", str(control)]
            sys.path[:] = [entry for entry in sys.path if entry]
            return host.main
        os.waitpid(between, 0)
        forking.send(os.read(reading, 100))
        for file in (*files, reading, writing):
            os.close(file)


def _take_numbers(files: list[int], numbers: list[int]) -> None:
    """Give received files the numbers that they have in the launcher."""
    high = [os.dup2(file, 500 + n) for n, file in enumerate(files)]
    for file in files:
        os.close(file)
    for file, number in zip(high, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)


class _Host:
    """What the launcher uses of a `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.is_running = True

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.is_running:
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float = LIMIT_SECONDS) -> None:
        until = time.monotonic() + timeout
        while self.is_running:
            try:
                self.is_running = os.waitpid(self.pid, os.WNOHANG) == (0, 0)
            except ChildProcessError:
                self.is_running = False
            if self.is_running and time.monotonic() > until:
                raise subprocess.TimeoutExpired("host", timeout)
            time.sleep(0.005)


if __name__ == "__main__":
    program = _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], sys.argv[3:])
    if program:
        program()
