"""Names the peers that have not come, from a process of its own: it does not import the package.

TensorFlow waits for peers silently, without an end, and without letting any other Python
thread of its process run. So the words come from here: this program is given what to wait for as
JSON, and ends when its standard input is closed, by the task when all have come or by its death.
If SIGTERM is sent to the task meanwhile, this program kills the task, which cannot react. (The
first process of a container cannot be killed from inside: there the platform does it.)
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "task"))  # Python was started with -I
import messages
from addresses import listens

del sys.path[0]

# A pending signal can only be looked up: nothing wakes this process for it.
POLL_SECONDS = 0.5


def main(name: str, others: dict[str, str], limit: float, notice_every: float, task: int) -> None:
    """Print the missing peers every ``notice_every`` seconds, for the last time after ``limit``.

    ``task`` is the process id of the task that waits.
    """
    start = time.monotonic()
    reported = 0.0
    while reported < limit:
        reported = min(reported + notice_every, limit)
        while (left := start + reported - time.monotonic()) > 0:
            if select.select([sys.stdin], [], [], min(left, POLL_SECONDS))[0]:
                return
            if _is_stop_pending(task):
                messages.notice("trainer: stopped by a signal while waiting for peers")
                os.kill(task, signal.SIGKILL)
                return
        missing = ", ".join(_missing(others)) or "peers that listen but have not joined"
        messages.notice(f"{name} has waited {reported:.0f} s for {missing}")
    messages.error(
        f"{missing} did not come within {limit:.0f} s: see whether that task runs and its address "
        f"can be reached (DISTLAUNCH_PEER_TIMEOUT sets the limit)"
    )


def _is_stop_pending(task: int) -> bool:
    """Return whether SIGTERM was sent to a process that blocks it, where /proc shows that."""
    try:
        status = Path(f"/proc/{task}/status").read_text(errors="replace")
    except OSError:
        return False
    pending = re.search(r"^ShdPnd:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return bool(pending and int(pending[1], 16) >> (signal.SIGTERM - 1) & 1)


def _missing(others: dict[str, str]) -> list[str]:
    # Peers that come soon, which are most, do not wait for this import.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(len(others)) as pool:
        listen = list(pool.map(listens, others.values()))
    return [
        f"{peer} ({address})"
        for (peer, address), is_here in zip(others.items(), listen, strict=True)
        if not is_here
    ]


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
