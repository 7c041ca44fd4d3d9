"""The process that holds one replica's processes, as a container would.

It starts the replica's program, hands on signals, and kills whatever is left when the program ends,
when it is told to, or when the emulator is gone, for whatever reason. It needs the standard library
alone.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys

from distlaunch.emulator.run.running import START_ERROR
from distlaunch.local import processes

# Isolated from what the user's environment does to Python, with a fixed place of ours to import.
BOOT = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from distlaunch.emulator.run.keeper import main; main()"
)
KILL = b"k"
"""What is written to a keeper for SIGKILL to all; any other byte stands for SIGTERM."""

_PATIENCE = 10.0  # seconds to kill everything in


def main() -> None:
    """Hold the program of the command line; the exit code is its own, 128+n for signal n."""
    processes.adopt_orphans()
    awake, waking = os.pipe()
    for end in (awake, waking):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    program = _start(sys.argv[1:])
    while program.poll() is None:
        ready, _, _ = select.select([0, awake], [], [])
        if awake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(awake, 4096)
        if 0 in ready:
            told = os.read(0, 64)
            if told and KILL not in told:
                processes.signal_group(program.pid, signal.SIGTERM)
            else:
                processes.signal_group(program.pid, signal.SIGKILL)
                processes.kill_descendants(_PATIENCE)
    processes.kill_descendants(_PATIENCE)
    processes.reap_all()
    code = program.returncode
    os._exit(code if code >= 0 else 128 - code)


def _start(words: list[str]) -> subprocess.Popen[bytes]:
    keeper = os.getpid()
    try:
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: processes.die_with(keeper),  # noqa: PLW1509 - there is one thread
        )
    except OSError as problem:
        print(f"exec: {words[0]!r}: {problem.strerror}", file=sys.stderr, flush=True)
        os._exit(START_ERROR)
