"""Windows, as far as Linux can be it.

As a script it runs commands of distlaunch and functions of tests in a process whose standard
library has nothing of POSIX that is not on Windows. `os.name` stays, because pathlib, for one,
would handle no path of this machine.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import importlib
import io
import json
import os
import signal
import struct
import subprocess
import sys
import sysconfig
import types
import warnings
from pathlib import Path
from typing import Any

# They decide what they are at import, so they are imported before Windows is.
EARLY = (
    *("asyncio", "click", "concurrent.futures.thread", "logging", "multiprocessing", "requests"),
    *("selectors", "shutil", "socketserver", "ssl", "tempfile", "urllib.request", "uuid"),
)
NOT_THERE = {
    "os": """O_NOFOLLOW O_NONBLOCK O_CLOEXEC WNOHANG fork forkpty setsid getpgid killpg getuid
        geteuid getgid getegid waitid set_blocking sched_getaffinity sched_setaffinity mkfifo
        chown lchown uname getloadavg""",
    "signal": """SIGHUP SIGKILL SIGCHLD SIGSTOP SIGCONT SIGTSTP SIGPIPE SIGUSR1 SIGUSR2 SIGQUIT
        SIGWINCH SIGALRM SIGXFSZ pause sigwait pthread_sigmask""",
    "select": "poll epoll PIPE_BUF",
    "time": "tzset",
}
MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")


class Locks:
    """`msvcrt.locking`, by locks of an open file description, which like Windows' are a handle's.

    https://learn.microsoft.com/cpp/c-runtime-library/reference/locking
    """

    LK_UNLCK, LK_NBLCK = 0, 2  # LK_LOCK gives up after ten attempts
    held: set[tuple[int, int]] = set()  # noqa: RUF012 - of the process

    @classmethod
    def locking(cls, descriptor: int, mode: int, count: int) -> None:
        start = os.lseek(descriptor, 0, os.SEEK_CUR)
        assert start >= os.fstat(descriptor).st_size, "no other process could read these bytes"
        kind = fcntl.F_UNLCK if mode == cls.LK_UNLCK else fcntl.F_WRLCK
        if kind == fcntl.F_UNLCK and (descriptor, start) not in cls.held:
            raise PermissionError(errno.EACCES, "Permission denied")  # not locked by this handle
        flock = struct.pack("hhqqi4x", kind, os.SEEK_SET, start, count, 0)
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, flock)
            (cls.held.discard if kind == fcntl.F_UNLCK else cls.held.add)((descriptor, start))
            return
        raise PermissionError(errno.EACCES, "Permission denied")


def become() -> None:
    """Make this process one on Windows."""
    for name in EARLY:
        importlib.import_module(name)
    sysconfig.get_config_vars()
    sys.modules["shutil"]._use_fd_functions = False
    for module in (os, signal):  # those of Linux, for its processes
        setattr(subprocess, module.__name__, types.SimpleNamespace(**vars(module)))
    for module, names in NOT_THERE.items():
        for name in names.split():
            vars(importlib.import_module(module)).pop(name, None)
    sys.modules.update(dict.fromkeys(MODULES))
    msvcrt: Any = types.ModuleType("msvcrt")
    msvcrt.locking, msvcrt.LK_UNLCK, msvcrt.LK_NBLCK = Locks.locking, Locks.LK_UNLCK, Locks.LK_NBLCK
    colorama: Any = types.ModuleType("colorama")
    colorama.just_fix_windows_console = lambda: None
    sys.modules |= {"msvcrt": msvcrt, "colorama": colorama}
    sys.platform = "win32"
    warnings.filterwarnings("error", category=EncodingWarning, module=r"distlaunch\.")


BECOME = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import windows; "
BECOME += "sys.path.pop(0); windows.become()\n"


def sessions(folder: Path, *commands: tuple[str, ...], **env: str) -> list[Any]:
    """Run commands on Windows, one after the other; return code, stdout and stderr of each."""
    return python(folder, __file__, json.dumps(commands), **env)


def python(folder: Path, *argv: str, **env: str) -> Any:
    """Run Python in a folder, and return what it prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", *argv],
        cwd=folder,
        env=os.environ | env,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run(words: list[str]) -> tuple[int, str, str]:
    """Run a command with streams that are pipes on Windows; `cd` changes the folder."""
    if words[0] == "cd":
        os.chdir(words[1])
        return 0, "", ""
    from distlaunch.__main__ import main

    streams = [io.TextIOWrapper(io.BytesIO(), "cp1252", newline="") for _ in range(2)]
    sys.argv[1:], (sys.stdout, sys.stderr) = words, streams
    try:
        code = main()
    finally:
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    for stream in streams:
        stream.flush()
    return code, *(stream.buffer.getvalue().decode("cp1252") for stream in streams)


if __name__ == "__main__":
    become()
    print(json.dumps([run(words) for words in json.loads(sys.argv[1])]))
