"""Names the peers that have not come, from a process of its own: it imports nothing of the trainer.

TensorFlow waits for peers without a word, without an end, and without letting any other Python
thread of its process run. So the words come from here: this program is given what to wait for as
JSON, and ends when its standard input is closed, by the task when all have come or by its death.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

CONNECT_SECONDS = 2.0


def main(name: str, others: dict[str, str], limit: float, notice_every: float) -> None:
    """Tell who is missing every ``notice_every`` seconds, and for the last time after ``limit``."""
    start = time.monotonic()
    told = 0.0
    while told < limit:
        told = min(told + notice_every, limit)
        if select.select([sys.stdin], [], [], max(0.0, start + told - time.monotonic()))[0]:
            return
        missing = ", ".join(_missing(others)) or "peers that listen but have not joined"
        print(f"{name} has waited {told:.0f} s for {missing}", file=sys.stderr, flush=True)
    print(
        f"trainer: error: {missing} did not come within {limit:.0f} s: see whether that task "
        f"runs and its address can be reached (DISTLAUNCH_PEER_TIMEOUT sets the limit)",
        file=sys.stderr,
        flush=True,
    )


def _missing(others: dict[str, str]) -> list[str]:
    with ThreadPoolExecutor(len(others)) as pool:
        listen = list(pool.map(_listens, others.values()))
    return [
        f"{peer} ({address})"
        for (peer, address), is_here in zip(others.items(), listen, strict=True)
        if not is_here
    ]


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS):
            return True
    except (OSError, OverflowError):
        return False


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
