"""Runs distlaunch and kills it at one of the moments that could leave half of a launch.

    python -m killed 3 submit --detach

Moments are those before an event of Python's audit hooks that changes something: a file below
.distlaunch is opened or renamed, or a call changes a job.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count

from distlaunch.__main__ import main

last = int(sys.argv.pop(1))
moments = count()


def kill_at_last_moment(event: str, arguments: tuple[object, ...]) -> None:
    is_file = event == "open" and ".distlaunch" in str(arguments[0])
    is_call = event == "http.client.send" and b"POST /v1/projects/" in bytes(arguments[1])
    if (is_file or is_call or event == "os.rename") and next(moments) == last:
        os.kill(os.getpid(), signal.SIGKILL)


sys.addaudithook(kill_at_last_moment)
sys.exit(main())
