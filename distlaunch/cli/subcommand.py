"""distlaunch as a process of another command of it, such as a trial of `tune --local`."""

from __future__ import annotations

import json
import sys

from distlaunch.cli import main as run
from distlaunch.local import processes


def main() -> None:
    """Run the command on stdin; it ends with the process whose id is the first argument."""
    processes.die_with(int(sys.argv.pop(1)))
    sys.argv[1:] = json.load(sys.stdin)
    sys.exit(run())
