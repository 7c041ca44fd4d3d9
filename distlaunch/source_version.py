"""The version of a project's code, by git and by hashes of its files."""

from __future__ import annotations

import hashlib
import os
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

from distlaunch.files import read_regular

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


# The configuration of a folder that comes from elsewhere may name programs: hooks, which writing
# the index runs too, a monitor of files, and servers for objects that are missing.
_SETTINGS = ("core.fsmonitor=false", f"core.hooksPath={os.devnull}")
_GIT = ("git", "--no-optional-locks", *(word for each in _SETTINGS for word in ("-c", each)))
_NO_PROTOCOL = {"GIT_ALLOW_PROTOCOL": "none"}
_TIMEOUT = 10  # seconds for git, which may wait for a lock or a slow disk


def commit_of(folder: Path) -> str | None:
    """Return the commit that a folder is at, None if unknown."""
    return _git(folder, "rev-parse", "--quiet", "--verify", "HEAD") or None


def has_changes(folder: Path) -> bool | None:
    """Whether tracked files of a folder differ from its commit, None if unknown.

    To compare files git runs filters, which the repository's own configuration may name.
    """
    filters = ("--includes", "--get-regexp", r"^filter\.")
    if any(_git(folder, "config", scope, *filters) for scope in ("--local", "--worktree")):
        return None
    words = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty")
    return bool(_git(folder, *words, "--", "."))


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
    try:
        process = subprocess.run(
            [*_GIT, "-C", str(folder), *words],
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=_TIMEOUT,
            env={**os.environ, **_NO_PROTOCOL},
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    return process.stdout.strip()
