"""The wait for the peers of a cluster: named while it lasts, and with an end."""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from distlaunch_trainer.errors import ClusterError

from .role import (
    Role,
)

_NOTICE_EVERY_SECONDS = 30.0


_LAST_WORDS_SECONDS = 3.0


_LONGEST_PEER_TIMEOUT_SECONDS = 1e6


_CLOUD_PEER_TIMEOUT_SECONDS = 1800.0


def peer_timeout(environ: Mapping[str, str]) -> float:
    """Return the seconds to wait for peers."""
    text = environ.get("DISTLAUNCH_PEER_TIMEOUT") or str(_CLOUD_PEER_TIMEOUT_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST_PEER_TIMEOUT_SECONDS:
        raise ClusterError(
            f"DISTLAUNCH_PEER_TIMEOUT must be a number of seconds above 0, got {text!r}"
        )
    return seconds


class PeerWatchdog:
    """Names the peers that have not come, and ends this process after a limit.

    TensorFlow waits for them in a call that lets no other Python thread run and that no exception
    or signal handler can leave. So another process reports it (``peer_watchdog.py``), and the
    interpreter's own timer, which needs no Python to run, ends this one with 1. The other process
    also ends this one when SIGTERM is pending.
    """

    def __init__(self, role: Role) -> None:
        limit = peer_timeout(os.environ)
        others = dict(zip(role.peers, role.addresses, strict=True))
        del others[role.name]
        self._seconds = limit + _LAST_WORDS_SECONDS
        self._order = json.dumps(
            {
                "name": role.name,
                "others": others,
                "limit": limit,
                "notice_every": _NOTICE_EVERY_SECONDS,
                "task": os.getpid(),
            }
        )

    def __enter__(self) -> None:
        program = Path(__file__).with_name("peer_watchdog.py")
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(program), self._order], stdin=subprocess.PIPE
        )
        self._unread = Path(os.devnull).open("wb")
        faulthandler.dump_traceback_later(self._seconds, exit=True, file=self._unread)

    def __exit__(self, *_: object) -> None:
        faulthandler.cancel_dump_traceback_later()
        self._unread.close()
        self._process.communicate()
