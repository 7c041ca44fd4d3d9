"""A task that waits for a debugger before its program runs: ``local --debug-task``.

It is run by debugpy's command line (https://github.com/microsoft/debugpy#debugpy-cli-usage).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch.errors import DistlaunchError, UsageError
from distlaunch.local.ports import HOST, is_taken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlaunch.job.model import Task

OPTION = "--debug-task"
PORT = 5678  # debugpy's default, so that an editor's configuration fits each run
_PROBE = "import importlib.util as u, sys; sys.exit(u.find_spec('debugpy') is None)"
_STARTS = ("-m", "-c")  # of a program, among Python's options
_WITH_VALUE = ("-W", "-X")  # options whose value is the next word

VARIABLES = {
    # What waits for this task waits as long as the debugger holds it.
    "DISTLAUNCH_PEER_TIMEOUT": str(7 * 24 * 3600),
    "DISTLAUNCH_DEBUG_TASK": "1",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # it warns of modules that Python has frozen
}
"""Those of all tasks of a run with a debugger."""


def parse_task(name: str) -> Task:
    """Return the task of the option; UsageError is raised for another name."""
    from distlaunch.job.model import Task

    try:
        return Task.parse(name)
    except UsageError as problem:
        raise UsageError(f"{OPTION}: {problem}") from None


def check_program(kind: str, words: Sequence[str]) -> None:
    """Raise an error if a program is not Python, or its Python has no debugpy."""
    if kind == "image":
        raise UsageError(f"{OPTION} cannot be used with --docker; remove one of them")
    python = sys.executable
    if kind == "command":
        folders = os.pathsep.join([str(Path(python).parent), os.environ.get("PATH", os.defpath)])
        if not Path(words[0]).name.startswith("python") or len(words) == 1:
            raise UsageError(f"{OPTION}: {words[0]} is not Python; write -- python FILE.py")
        python = shutil.which(words[0], path=folders) or words[0]
    try:
        code = subprocess.run([python, "-c", _PROBE], check=False, capture_output=True).returncode
    except OSError:
        return  # the run reports it
    if code:
        raise DistlaunchError(
            f"{OPTION}: debugpy is not installed in {python}",
            remedy=f"run '{python} -m pip install debugpy'",
        )


def debugged(words: Sequence[str], port: int, *, is_module: bool) -> list[str]:
    """Return the words of a program that waits for a debugger at a port of this machine."""
    python, *rest = [sys.executable, "-m", *words] if is_module else words
    options: list[str] = []
    while rest and rest[0].startswith("-") and rest[0][:2] not in _STARTS:
        count = 2 if rest[0] in _WITH_VALUE else 1
        options += rest[:count]
        del rest[:count]
    listen = ["-m", "debugpy", "--listen", f"{HOST}:{port}", "--wait-for-client"]
    return [python, *options, *listen, *rest]


def choose_port(other: int) -> int:
    """Return debugpy's default port, or another one where that is taken."""
    return other if is_taken(PORT) else PORT


def waiting_text(task: str, port: int) -> str:
    """Return what to do, once a task waits."""
    return (
        f"waiting for a debugger at {HOST}:{port} (task {task}); attach with VS Code's 'Python "
        "Debugger: Remote Attach', or another client of debugpy"
    )
