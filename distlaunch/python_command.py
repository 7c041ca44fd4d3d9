"""Commands of this Python that distlaunch starts, in folders where a clone may hold any module."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PACKAGE_PARENT = str(Path(__file__).parents[1])


def python_command(module: str, *words: str, function: str = "main") -> list[str]:
    """Return the command that runs a function of a module, whatever is in the current folder.

    The first entry of its ``sys.path`` is the folder of this package.
    """
    code = (
        "import sys; sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]; "
        f"from {module} import {function} as main; main()"
    )
    return [sys.executable, "-c", code, _PACKAGE_PARENT, *words]


def distlaunch_command() -> list[str]:
    """Return the command that runs distlaunch with the words on its stdin, and ends with this."""
    return python_command("distlaunch.cli", str(os.getpid()), function="main_of_stdin")


@contextmanager
def on_stdin(words: Sequence[str]) -> Iterator[IO[bytes]]:
    """Return the stdin for `distlaunch_command`: a list of processes shows arguments to anyone."""
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps([*words]).encode())
        file.seek(0)
        yield file
