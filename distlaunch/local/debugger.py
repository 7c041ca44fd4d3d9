"""A task that waits for a debugger before its program runs: ``local --debug-task``.

It is run by debugpy's command line (https://github.com/microsoft/debugpy#debugpy-cli-usage).
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from distlaunch.errors import DistlaunchError, UsageError
from distlaunch.local.ports import HOST, HeldPorts, is_taken

if TYPE_CHECKING:
    from collections.abc import Sequence

PORT = 5678  # debugpy's default, so that an editor's configuration fits each run

DEBUGGED = {
    # What waits for this task waits as long as the debugger holds it.
    "DISTLAUNCH_PEER_TIMEOUT": str(7 * 24 * 3600),
    "DISTLAUNCH_DEBUG_TASK": "1",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # it warns of modules that Python has frozen
}
"""Variables of all tasks of a run with a debugger."""


def check_program(words: Sequence[str], *, is_module: bool) -> None:
    """Raise an error if a program is not Python, or if this Python runs it without debugpy."""
    if not is_module and not Path(words[0]).name.startswith("python"):
        raise UsageError(f"--debug-task: {words[0]} is not Python; write -- python FILE.py")
    # Another Python's own error names debugpy.
    if (is_module or words[0] in ("python", "python3")) and not find_spec("debugpy"):
        raise DistlaunchError(
            f"--debug-task: debugpy is not installed in {sys.executable}",
            remedy=f"run '{sys.executable} -m pip install debugpy'",
        )


class Debugger(NamedTuple):
    """Where a task waits for a debugger."""

    task: str
    port: int

    @classmethod
    def of_task(cls, task: str | None) -> Debugger | None:
        """Return where a task is to wait, None without one."""
        if task is None:
            return None
        with HeldPorts(1) as free:
            return cls(task, free.numbers[0] if is_taken(PORT) else PORT)

    def words(self, program: Sequence[str], *, is_module: bool) -> list[str]:
        """Return the words of a program that waits for the debugger."""
        python, *rest = [sys.executable, "-m", *program] if is_module else program
        options: list[str] = []
        while rest and rest[0].startswith("-") and rest[0][:2] not in ("-m", "-c"):
            count = 2 if rest[0] in ("-W", "-X") else 1  # with its value
            options, rest = options + rest[:count], rest[count:]
        listen = ["--listen", f"{HOST}:{self.port}", "--wait-for-client"]
        # Each Python that the program starts would wait for a client of its own.
        alone = ["--configure-subProcess", "False"]
        return [python, *options, "-m", "debugpy", *listen, *alone, *rest]

    def __str__(self) -> str:
        return (
            f"waiting for a debugger at {HOST}:{self.port} (task {self.task}); attach with VS "
            "Code's 'Python Debugger: Remote Attach', or another client of debugpy"
        )
