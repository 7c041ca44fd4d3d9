"""What was found out of files before, so that an unchanged file is not read again."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

_NAME = "context.json"
_VERSION = 2  # of the file, and of what it takes for a secret: what is known was found clean
_DIGITS = 64  # of a digest


def stamp(seen: os.stat_result) -> str:
    """Return what changes whenever a file does.

    The time of its last change cannot be set back, as that of its content's can.
    """
    return f"{seen.st_ctime_ns} {seen.st_size} {seen.st_ino}"


class Known:
    """Digests by the paths of files and their `stamp`, or what else is known of a file.

    A file may change twice within one tick of the file system's clock, and look the same after the
    second time. So only what was last changed before the reading began is known later, as git does
    with its index.

    Parameters
    ----------
    folder
        Where they are kept; None for nowhere. What cannot be read or kept there is hashed again.
    name
        The file there.
    version
        Changes with what is kept, and with what it is made by.
    length
        How long what is kept of a file is, None for as long as it may be.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        name: str = _NAME,
        version: int | str = _VERSION,
        length: int | None = _DIGITS,
    ) -> None:
        self._folder = folder
        self._name, self._version = name, version
        self._before = _read(folder / name, version, length) if folder else {}
        self._began = _clock(folder) if folder else 0
        self._now: dict[str, str] = {}
        self._learned = False

    def digest(self, path: str, seen: os.stat_result) -> str | None:
        """Return a file's digest, or None where it has to be read."""
        key = f"{stamp(seen)} {path}"
        digest = self._before.get(key)
        if digest is not None:
            self._now[key] = digest
        return digest

    def learn(self, path: str, seen: os.stat_result, digest: str) -> None:
        """Remember a file's digest, if it can be relied on."""
        if max(seen.st_mtime_ns, seen.st_ctime_ns) < self._began:
            self._now[f"{stamp(seen)} {path}"] = digest
            self._learned = True

    def keep(self) -> None:
        """Write what is known now, if that is more or less than what was known before."""
        if self._folder and (self._learned or len(self._now) != len(self._before)):
            with suppress(OSError):  # then it is hashed again
                _write(self._folder / self._name, {"version": self._version, "files": self._now})


def _clock(folder: Path) -> int:
    """Return the time as the file system counts it; 0 where nothing can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return 0


def _read(file: Path, version: int | str, length: int | None) -> dict[str, str]:
    try:
        data: Any = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(data, dict) or data.get("version") != version:
        return {}
    files = data.get("files")
    return files if isinstance(files, dict) and _are_right(files.values(), length) else {}


def _are_right(values: Collection[Any], length: int | None) -> bool:
    are_text = set(map(type, values)) <= {str}
    return are_text and (length is None or set(map(len, values)) <= {length})


def _write(file: Path, data: dict[str, Any]) -> None:
    """Write it as a whole or not at all."""
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8") as part:
        try:
            json.dump(data, part, separators=(",", ":"))
            part.close()
            Path(part.name).replace(file)
        except BaseException:
            Path(part.name).unlink(missing_ok=True)
            raise
