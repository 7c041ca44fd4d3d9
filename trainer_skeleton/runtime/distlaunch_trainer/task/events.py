"""What a task reports to the launcher: JSON objects, one a line, in a file."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any


def append_event(name: str, facts: Mapping[str, Any]) -> None:
    """Append an event to the file named by ``DISTLAUNCH_EVENTS``, if any; its line is whole."""
    path = os.environ.get("DISTLAUNCH_EVENTS")
    if not path:
        return
    line = json.dumps({"event": name, "time": time.time(), **facts}) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        # One call with O_APPEND, so that no other process's line is within this one.
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)
