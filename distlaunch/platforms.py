"""What differs on Windows: jobs are launched and looked at from there, and none run there."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from distlaunch.errors import DistlaunchError

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
NON_BLOCKING: int = getattr(os, "O_NONBLOCK", 0)  # so that opening a FIFO does not wait


def require_posix(what: str) -> None:
    """Raise DistlaunchError on Windows for what needs processes and signals of POSIX."""
    # Its processes have no groups and no signals by which `local` leaves nothing behind.
    if sys.platform == "win32":
        raise DistlaunchError(f"{what} needs Linux or macOS; on Windows use WSL")


def prepare_process() -> None:
    """Have the standard streams take any text: what is not in their encoding becomes '?'."""
    if sys.platform == "win32":
        # No program of a cloned project is run in place of git or Docker. The variable is that of
        # https://learn.microsoft.com/windows/win32/api/processenv/nf-processenv-needcurrentdirectoryforexepathw
        os.environ.setdefault("NoDefaultCurrentDirectoryInExePath", "1")
        import colorama  # type: ignore[import-untyped]  # click has it there

        colorama.just_fix_windows_console()
    for stream in (sys.stdout, sys.stderr):
        if getattr(stream, "errors", "") == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


if sys.platform == "win32":
    import msvcrt

    # Far behind the content: other processes cannot read bytes that are locked.
    _LOCKED_BYTE = 1 << 30
    _LOOK = 0.1  # seconds between two attempts

    def lock_file(descriptor: int, *, wait: bool) -> None:
        """Lock an open file; BlockingIOError is raised if another process has, and not `wait`."""
        while True:
            os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
            try:
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            except PermissionError as error:
                if not wait:
                    raise BlockingIOError(*error.args) from None
                time.sleep(_LOOK)  # LK_LOCK gives up after ten seconds
            else:
                return

    def unlock_file(descriptor: int) -> None:
        """Unlock a file that is to be closed, which Windows does at some time after that."""
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

    def kill_tree(process: subprocess.Popen[str]) -> None:
        """Kill a process with all that it has started."""
        import subprocess

        words = ["taskkill", "/F", "/T", "/PID", str(process.pid)]
        subprocess.run(words, capture_output=True, check=False)

    def replace(source: Path, target: Path) -> None:
        """Rename a file over another, once no process has that one open."""
        for _ in range(20):
            try:
                source.replace(target)
            except PermissionError:  # noqa: PERF203 - another program reads it
                time.sleep(_LOOK)
            else:
                return
        source.replace(target)

    def write(descriptor: int, data: bytes) -> int:
        """Write to a standard stream: a console takes UTF-8 through Python's own only."""
        stream = sys.stdout if descriptor == 1 else sys.stderr
        stream.buffer.write(data)
        stream.buffer.flush()
        return len(data)

else:
    import fcntl
    import signal

    def lock_file(descriptor: int, *, wait: bool) -> None:
        """Lock an open file; BlockingIOError is raised if another process has, and not `wait`."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))

    def unlock_file(descriptor: int) -> None:
        """Leave a file locked until the last process that has it open closes it."""

    def kill_tree(process: subprocess.Popen[str]) -> None:
        """Kill a process that leads a session, with all that it has started."""
        os.killpg(process.pid, signal.SIGKILL)

    replace, write = os.replace, os.write
