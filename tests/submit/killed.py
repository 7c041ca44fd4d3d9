"""Runs distlaunch and kills it at one of the moments that could leave half of a launch.

    python tests/submit/killed.py 3 submit --detach

Moments are what Python's audit hooks report: a file of ours that is opened, a name that is
changed, a lock, a process, a connection, and what is sent through one.
"""

from __future__ import annotations

import os
import signal
import sys

EVENTS = (
    "fcntl.flock",
    "http.client.connect",
    "http.client.send",
    "os.mkdir",
    "os.rename",
    "subprocess.Popen",
)

at = int(sys.argv.pop(1))
seen = 0


def kill_when_it_is_time(event: str, arguments: tuple[object, ...]) -> None:
    """Count moments."""
    global seen  # noqa: PLW0603 - one hook a process
    if event not in EVENTS and not (event == "open" and ".distlaunch" in str(arguments[0])):
        return
    if seen == at:
        os.kill(os.getpid(), signal.SIGKILL)
    seen += 1


sys.addaudithook(kill_when_it_is_time)

from distlaunch.__main__ import main  # noqa: E402 - the hook comes first

sys.exit(main())
