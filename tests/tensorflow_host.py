"""A process that has imported TensorFlow once and forks what the tests run with it.

Most tests that train start `distlaunch local`, whose host imports TensorFlow: some seconds of a
core each time. Here the launcher and its host are forks of one process; everything after the
import is real. Tests of starting, signals and interpreters run their own processes instead.
"""

from __future__ import annotations

import atexit
import contextlib
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
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

LIMIT_SECONDS = 300


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


class TensorFlowHost:
    """Runs Python modules in forks of a process that has imported TensorFlow."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control

    def run(
        self, module: str, *arguments: str, cwd: Path, env: Mapping[str, str], limit: float
    ) -> Result:
        """Do what ``python -m module arguments`` does; killed after ``limit`` seconds."""
        command = {"argv": [module, *arguments], "cwd": str(cwd), "env": dict(env), "limit": limit}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            streams = [out.fileno(), err.fileno()]
            socket.send_fds(self._control, [json.dumps(command).encode()], streams)
            code = json.loads(self._control.recv(100))
            return Result(code, _text(out), _text(err))


def _text(file: Any) -> str:
    file.seek(0)
    return file.read().decode()


@contextlib.contextmanager
def running() -> Iterator[TensorFlowHost]:
    """Start the process; it ends with the block."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {"OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(theirs.fileno())]
    with theirs:
        process = subprocess.Popen(
            command,
            env=os.environ | environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    ours.setblocking(True)
    with ours:
        yield TensorFlowHost(ours)
    process.wait()


def _serve(control: socket.socket) -> None:
    """Fork a child for every command until the other end is closed."""
    import keras  # noqa: F401 - for the children
    import tensorflow as tf  # noqa: F401

    from distlaunch.local import host_process

    host_process.start_host = _fork_host
    del os.environ["OPENBLAS_NUM_THREADS"]
    assert threading.active_count() == 1
    while True:
        data, streams, _, _ = socket.recv_fds(control, 1 << 20, 2)
        if not data:
            return
        command = json.loads(data)
        child = os.fork()
        if not child:
            control.close()
            _become(partial(_run_module, command), out=streams[0], err=streams[1])
        for stream in streams:
            os.close(stream)
        control.send(json.dumps(_wait(child, command["limit"])).encode())


def _wait(child: int, limit: float) -> int:
    until = time.monotonic() + limit
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.02)


def _run_module(command: dict[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(command["env"])
    os.chdir(command["cwd"])
    sys.argv = command["argv"]
    sys.path.insert(0, command["cwd"])
    runpy.run_module(command["argv"][0], run_name="__main__", alter_sys=True)


def _fork_host(control: int, pipes: list[int], env: Mapping[str, str], log: Any) -> _Forked:
    """Replace `host_process.start_host`: a fork of this process instead of a new Python."""
    child = os.fork()
    if not child:
        _be_host(control, pipes, env, log)
    return _Forked(child)


def _be_host(control: int, pipes: list[int], env: Mapping[str, str], log: Any) -> NoReturn:
    from distlaunch.local import host

    keep = {control, *pipes, log.fileno()}
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) > 2 and int(entry.name) not in keep:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself
                os.close(int(entry.name))
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["-c", str(control)]
    sys.path[:] = [entry for entry in sys.path[1:] if entry]
    _become(host.main, out=log.fileno(), err=log.fileno())


class _Forked:
    """What the launcher uses of a `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def kill(self) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        until = time.monotonic() + timeout if timeout else None
        while self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self.returncode = 0
                break
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
            elif until and time.monotonic() > until:
                raise subprocess.TimeoutExpired("host", timeout or 0)
            else:
                time.sleep(0.005)
        return self.returncode


def _become(program: Callable[[], object], *, out: int, err: int) -> NoReturn:
    """Run a program in this forked process as the interpreter would, and end with its code."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    code: Any = 0
    try:
        program()
    except SystemExit as end:
        code = end.code
    except BaseException as problem:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(type(problem), problem, problem.__traceback__)
        code = 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    with contextlib.suppress(Exception):
        threading._shutdown()
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
