"""The process that supervises one replica's processes, as a container would.

It starts the replica's program. Each byte on stdin sends SIGTERM to the program; the end of stdin,
which is also how the emulator's end shows, kills all. When the program ends, whatever it left is
killed. It needs the standard library alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

from distlaunch.local import processes

START_ERROR = 128
"""The exit code of a replica that could not be started, as containers have it."""

# Isolated from what the user's environment does to Python, with our package as the only path added.
BOOT = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from distlaunch.emulator.supervisor import main; main()"
)

_KILL_TIMEOUT = 10.0  # seconds


def main() -> None:
    """Run the program of the command line; the exit code is its own, 128+n for signal n."""
    processes.adopt_orphans()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # unlike SIG_IGN, a handler is not inherited
    program = _start(sys.argv[1:])
    threading.Thread(target=_follow_stdin, args=(program.pid,), daemon=True).start()
    code = program.wait()
    processes.kill_descendants(_KILL_TIMEOUT)
    processes.reap_all()
    os._exit(code if code >= 0 else 128 - code)


def _follow_stdin(program: int) -> None:
    while os.read(0, 1):
        processes.signal_group(program, signal.SIGTERM)
    processes.signal_group(program, signal.SIGKILL)
    processes.kill_descendants(_KILL_TIMEOUT)


def _start(argv: list[str]) -> subprocess.Popen[bytes]:
    supervisor = os.getpid()
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: processes.die_with(supervisor),  # noqa: PLW1509 - there is one thread
        )
    except OSError as problem:
        print(f"exec: {argv[0]!r}: {problem.strerror}", file=sys.stderr, flush=True)
        os._exit(START_ERROR)
