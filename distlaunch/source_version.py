"""The version of a project's code, by git and by hashes of its files."""

from __future__ import annotations

import hashlib
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

from distlaunch.files import read_regular

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


_TIMEOUT = 10  # seconds for git, which may wait for a lock or a slow disk


def commit_of(folder: Path) -> str | None:
    """Return the commit that a folder is at, None if unknown."""
    return _git(folder, "rev-parse", "--quiet", "--verify", "HEAD") or None


def has_changes(folder: Path) -> bool:
    """Whether tracked files of a folder differ from its commit."""
    return bool(_git(folder, "status", "--porcelain", "--untracked-files=no", "--", "."))


def describe_commit(commit: str | None, has_changes: bool | None) -> str:
    """Return a commit, and whether files differ from it; empty if it is unknown."""
    return f"{commit} with changes" if commit and has_changes else commit or ""


def hash_files(folder: Path, paths: Iterable[Path]) -> str:
    """Return a hash of the names and contents of a folder's files that can be read."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        with suppress(OSError, ValueError):
            content = read_regular(path)
            name = path.relative_to(folder).as_posix()
            digest.update(f"{name} {len(content)} ".encode() + content)
    return digest.hexdigest()[:16]


def _git(folder: Path, *words: str) -> str:
    # The configuration of a folder that comes from elsewhere may name a program as fsmonitor.
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *words]
    try:
        process = subprocess.run(
            command, capture_output=True, encoding="utf-8", check=False, timeout=_TIMEOUT
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    return process.stdout.strip()
