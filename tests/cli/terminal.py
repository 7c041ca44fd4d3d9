"""Commands on a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def run_on_terminal(
    *words: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    answer: str = "",
    columns: int = 0,
) -> tuple[int, str]:
    """Run `distlaunch` on a terminal, and return the exit code and all that it shows.

    `answer` is what a person types, before the command reads it. The width of the terminal is
    unknown without `columns`.
    """
    terminal, program = pty.openpty()
    fcntl.ioctl(program, termios.TIOCSWINSZ, struct.pack("4H", 24 * bool(columns), columns, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-m", "distlaunch", *words],
        cwd=cwd,
        env=os.environ | {"TERM": "xterm"} | (env or {}),
        stdin=program,
        stdout=program,
        stderr=program,
        start_new_session=True,
    ) as process:
        os.close(program)
        os.write(terminal, answer.encode())
        shown = b""
        with suppress(OSError):  # Linux's end of a terminal
            while piece := os.read(terminal, 1 << 12):
                shown += piece
    os.close(terminal)
    return process.returncode, shown.decode()
