"""The project's Python files, each read once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from distlaunch.checks.project import source

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.checks.project.source import Source


class Sources:
    """The Python files of a folder.

    Parameters
    ----------
    folder
        The project's.
    python
        The version that runs the files, None if it is not known.
    """

    def __init__(self, folder: Path, python: tuple[int, int] | None = None) -> None:
        self._folder = str(folder)  # there may be a thousand files, and Path is slow
        here = sys.version_info[:2]
        self._python = python if python and python < here else None
        self._read: dict[str, Source] = {}

    def verdict(self, path: str) -> tuple[int, str] | None:
        """Return the line and the reason if a file does not parse, None if it does."""
        if path in self._read:
            return self._read[path].problem
        return source.verdict(self._content(path))

    def of(self, path: str) -> Source:
        """Return a file's imports, names and syntax error."""
        if path not in self._read:
            self._read[path] = source.read(self._content(path), self._python)
        return self._read[path]

    def may_be_newer(self, path: str, line: int) -> bool:
        """Return whether a line that does not parse may be syntax of a newer Python."""
        return source.may_be_newer(self._content(path), line)

    def _content(self, path: str) -> bytes:
        """Return a file's content, empty if it cannot be read."""
        try:
            with open(f"{self._folder}/{path}", "rb", 0) as file:  # noqa: PTH123
                return file.read()
        except OSError:
            return b""
