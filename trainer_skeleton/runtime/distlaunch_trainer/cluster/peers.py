"""The wait for the peers of a cluster: named while it lasts, and with an end."""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from distlaunch_trainer.errors import ClusterError

from .role import Role

_NOTICE_EVERY_SECONDS = 30.0
# For the other process to print what is missing before the timer ends this one.
_LAST_WORDS_SECONDS = 3.0
# The interpreter's timer takes neither infinity nor much more.
_LONGEST_PEER_TIMEOUT_SECONDS = 1e6
# Vertex AI starts each replica's program as its machine comes, which may take many minutes.
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


@contextmanager
def watch_peers(role: Role) -> Iterator[None]:
    """Name the peers that have not come, and end this process after a limit.

    TensorFlow waits for them in a call that lets no other Python thread run and that no exception
    or signal handler can leave. So another process reports it (``peer_watchdog.py``), and the
    interpreter's own timer, which needs no Python to run, ends this one with 1. The other process
    also ends this one when SIGTERM is pending.
    """
    limit = peer_timeout(os.environ)
    addresses = zip(role.peers, role.addresses, strict=True)
    arguments = {
        "name": role.name,
        "others": {peer: address for peer, address in addresses if peer != role.name},
        "limit": limit,
        "notice_every": _NOTICE_EVERY_SECONDS,
        "task": os.getpid(),
    }
    program = Path(__file__).with_name("peer_watchdog.py")
    command = [sys.executable, "-I", str(program), json.dumps(arguments)]
    # The program ends when its standard input is closed.
    with subprocess.Popen(command, stdin=subprocess.PIPE), Path(os.devnull).open("wb") as unread:
        faulthandler.dump_traceback_later(limit + _LAST_WORDS_SECONDS, exit=True, file=unread)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
