"""Whether a debugger may hold a task of this run (``distlaunch local --debug-task``)."""

from __future__ import annotations

import os


def is_debugged() -> bool:
    """Return whether a task may be held by a debugger, so that others wait without a limit."""
    return bool(os.environ.get("DISTLAUNCH_DEBUG_TASK"))
