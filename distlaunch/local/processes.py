"""What it takes to leave no process behind: adopting orphans, finding and killing descendants.

On Linux the kernel does the most of it. Elsewhere these do nothing, and process groups have to do.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

IS_LINUX = sys.platform == "linux"

_PROC = Path("/proc")
# Of <linux/prctl.h>: Python's library has no prctl().
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_CLEAN_LOOKS = 3  # one may miss who was started by a process that it saw before, and that is gone
_PAUSE = 0.01  # seconds between two looks at who is left


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose own parent ends."""
    if IS_LINUX:
        _libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, however that happens."""
    if IS_LINUX:
        _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The parent may have ended before the call, which the kernel does not report.
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def signal_group(leader: int, number: int) -> None:
    """Signal a process group, if any process of it is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def living_descendants(spare: Collection[int] = ()) -> list[int]:
    """Return the processes that descend from this one and run, or would if they were continued."""
    states = dict(_all_processes())
    children: dict[int, list[int]] = {}
    for process, (parent, _) in states.items():
        children.setdefault(parent, []).append(process)
    descendants: list[int] = []
    unseen = [os.getpid()]
    while unseen:
        own = [child for child in children.get(unseen.pop(), []) if child not in spare]
        descendants += own
        unseen += own
    return [process for process in descendants if states[process][1] not in "ZX"]


def kill_descendants(limit: float, spare: Collection[int] = ()) -> bool:
    """Kill all that descends from this process, and what that may yet start; but none of `spare`.

    Return whether none is left after `limit` seconds: the kernel may hold a process that waits for
    a device.
    """
    until = time.monotonic() + limit
    clean_looks = 0
    while clean_looks < _CLEAN_LOOKS:
        left = living_descendants(spare)
        clean_looks = 0 if left else clean_looks + 1
        for process in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        if left and time.monotonic() > until:
            return False
        time.sleep(_PAUSE)
    return True


def reap_all() -> None:
    """Let go of every child that has ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def ended_children() -> list[int]:
    """Return the children of this process, adopted ones too, that wait to be reaped."""
    own = os.getpid()
    return [
        process for process, (parent, state) in _all_processes() if parent == own and state == "Z"
    ]


def thread_count() -> int:
    """Return how many threads this process has; 1 if that is unknown."""
    try:
        return sum(1 for _ in (_PROC / "self" / "task").iterdir())
    except OSError:
        return 1


def _all_processes() -> Iterator[tuple[int, tuple[int, str]]]:
    """Give each process with its parent and the letter of its state."""
    if not IS_LINUX:
        return
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            # The name, in parentheses, may hold anything, parentheses too.
            state, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
            yield int(entry.name), (int(parent), state.decode())


@cache
def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)
