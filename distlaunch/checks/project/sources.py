"""The project's Python files, each read once and not again before it changes."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import astuple
from typing import TYPE_CHECKING

from distlaunch.checks.project import source
from distlaunch.checks.project.source import Import, Source
from distlaunch.image.context.known import Known

if TYPE_CHECKING:
    from pathlib import Path

CACHE = ".distlaunch/cache"  # of a project's folder

_FILE = "sources.json"
_VERSION = 1  # of what is kept of a file
_FINE = json.dumps([])  # what is kept of a file of which only the verdict was asked


class Sources:
    """The Python files of a folder.

    What is found out of a file is kept beside what is known of its content, and used again for as
    long as the file is the same; `keep` writes it.

    Parameters
    ----------
    folder
        The project's.
    python
        The version that runs the files, None where that is not known.
    """

    def __init__(self, folder: Path, python: tuple[int, int] | None = None) -> None:
        self._folder = str(folder)  # there may be a thousand files, and Path takes its time
        here = sys.version_info[:2]
        self._python = python if python and python < here else None
        version = f"{_VERSION} {here} {self._python}"
        self._known = Known(folder / CACHE, name=_FILE, version=version, length=None)
        self._read: dict[str, Source] = {}

    def verdict(self, path: str) -> tuple[int, str] | None:
        """Return where and why a file does not parse, None where it does."""
        if path in self._read:
            return self._read[path].problem
        kept = self._kept(path)
        if kept == _FINE:
            return None
        before = _recall(kept) if kept else None
        if before:
            return before.problem
        seen, text = self._content(path)
        problem = source.verdict(text)
        if seen:
            self._known.learn(path, seen, _telling(Source(problem)) if problem else _FINE)
        return problem

    def of(self, path: str) -> Source:
        """Return what a file says of itself."""
        if path not in self._read:
            self._read[path] = _recall(self._kept(path)) or self._parsed(path)
        return self._read[path]

    def may_be_newer(self, path: str, line: int) -> bool:
        """Whether a line that does not parse may be what only a newer Python takes."""
        return source.may_be_newer(self._content(path)[1], line)

    def keep(self) -> None:
        """Keep what was found out for the next time."""
        self._known.keep()

    def _parsed(self, path: str) -> Source:
        seen, text = self._content(path)
        found = source.read(text, self._python)
        if seen:
            self._known.learn(path, seen, _telling(found))
        return found

    def _kept(self, path: str) -> str | None:
        """Return what was kept of a file that is still as it was."""
        try:
            return self._known.digest(path, os.stat(f"{self._folder}/{path}"))  # noqa: PTH116
        except OSError:
            return None

    def _content(self, path: str) -> tuple[os.stat_result | None, bytes]:
        """Return a file as it is, with how it looked before; what cannot be read is empty."""
        try:
            with open(f"{self._folder}/{path}", "rb", 0) as file:  # noqa: PTH123
                return os.fstat(file.fileno()), file.read()
        except OSError:
            return None, b""


def _telling(found: Source) -> str:
    names = None if found.names is None else sorted(found.names)
    imports = [astuple(each) for each in found.imports]
    return json.dumps([found.problem, imports, names, found.searches_elsewhere])


def _recall(kept: str | None) -> Source | None:
    """Return what was kept, None where it was no more than the verdict, or is not ours."""
    try:
        problem, imports, names, elsewhere = json.loads(kept or "")
        return Source(
            None if problem is None else (int(problem[0]), str(problem[1])),
            tuple(Import(*each) for each in imports),
            None if names is None else frozenset(names),
            bool(elsewhere),
        )
    except (ValueError, TypeError):
        return None
