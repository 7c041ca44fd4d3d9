"""The commit that a project's folder is at."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def commit_of(folder: Path) -> tuple[str | None, bool | None]:
    """Return the commit that a folder is at and whether it was changed since; None if unknown.

    Changes inside of submodules are ignored.
    """
    commit = _git(folder, "rev-parse", "HEAD")
    return (commit, _is_dirty(folder)) if commit else (None, None)


def _is_dirty(folder: Path) -> bool | None:
    """Run `git status` without the filters of git's configuration.

    The folder's configuration may come from another person, and a filter is any program.
    """
    filters = _git(folder, "config", "--null", "--name-only", "--get-regexp", r"^filter\.") or ""
    keys = [key for key in filters.split("\0") if key]
    if any("=" in key for key in keys):
        return None  # -c accepts no such key
    options = [word for key in keys for word in ("-c", f"{key}=")]
    words = ("status", "--porcelain", "--no-renames", "--ignore-submodules=all", "--", ".")
    changes = _git(folder, *options, *words)
    return None if changes is None else bool(changes)


def _git(folder: Path, *words: str) -> str | None:
    """Run git without the hooks, the fsmonitor and the remotes of the folder's configuration."""
    options = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
    # No write of the index, which runs a hook; no fetch of missing objects by any protocol.
    variables = {"GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none"}
    try:
        process = subprocess.run(
            ["git", *options, "-C", folder, *words],
            capture_output=True,
            check=False,
            env=os.environ | variables,
        )
    except OSError:
        return None
    return os.fsdecode(process.stdout).strip() if process.returncode == 0 else None
