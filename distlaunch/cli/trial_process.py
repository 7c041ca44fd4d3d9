"""The process of a trial of `tune --local`: a command that ends when its search is killed."""

from __future__ import annotations

import sys

from distlaunch.cli import main as run
from distlaunch.local import processes


def main() -> None:
    """Run the command in the arguments after the search's process id."""
    processes.die_with(int(sys.argv.pop(1)))
    sys.exit(run())
