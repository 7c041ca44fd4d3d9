"""Folders that no other user can replace, judged as OpenSSH judges those of its keys (StrictModes).

What is in the folder of a launch runs as the user who submits it, and other users of the cluster
may be able to write beside it.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from distlaunch.errors import SlurmRefused, os_reason

if TYPE_CHECKING:
    from pathlib import Path

_MODE = 0o755  # of new folders, less the umask: no other user writes there
_ROOT = 0  # user and group
_MAX_PARTS = 200  # of a path with all that its symlinks name, which may be a circle
_REMEDY = "set slurm.folder to a folder of yours that all nodes share, such as ~/jobs"


def is_own_folder(path: Path) -> bool:
    """Whether a path is a folder of the user who runs this, and no symlink."""
    try:
        info = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid()


def make_own_folder(path: Path) -> None:
    """Create a folder of this user, and its parents.

    SlurmRefused is raised if another user could replace the folder, or it cannot be created.
    """
    try:
        _refuse_exposed(path)
        for part in (*reversed(path.parents), path):
            part.mkdir(_MODE, exist_ok=True)
        _refuse_exposed(path)  # another user may have been faster
    except OSError as problem:
        what = f"{problem.filename or path}: cannot be written ({os_reason(problem)})"
        raise SlurmRefused(what, remedy=_REMEDY) from None
    for part in (path.parent, path):
        if not is_own_folder(part):
            raise SlurmRefused(f"{part} is no folder of yours", remedy=_REMEDY)


def _refuse_exposed(path: Path) -> None:
    exposure = find_exposure(path)
    if exposure:
        raise SlurmRefused(exposure[0], remedy=exposure[1])


def find_exposure(path: Path) -> tuple[str, str] | None:
    """Return how another user could replace a folder, and the remedy; None if none could.

    Each folder on the way to it, and each symlink, has to be of this user or of root, and others
    may write only folders that are sticky. What does not exist yet is left out. OSError is raised
    for what cannot be looked at.
    """
    path = path.absolute()
    at, names = path / path.anchor, [*reversed(path.parts[1:])]
    for _ in range(_MAX_PARTS):
        try:
            info = at.lstat()
        except FileNotFoundError:
            return None
        mode, is_own = info.st_mode, info.st_uid == os.geteuid()
        if not is_own and info.st_uid != _ROOT:
            return f"{at} belongs to {_user_name(info.st_uid)}, not to you", _REMEDY
        if stat.S_ISLNK(mode):
            names += reversed(at.readlink().parts)
            at = at.parent
        elif _is_open(info):
            what = f"{at} can be written by others (mode {stat.S_IMODE(mode):o})"
            return what, f"run 'chmod go-w {at}', or {_REMEDY}" if is_own else _REMEDY
        if not names:
            return None
        at /= names.pop()
    return f"{path} has too many symlinks", _REMEDY


def _is_open(folder: os.stat_result) -> bool:
    """Whether another user may rename what is in a folder."""
    if folder.st_mode & stat.S_ISVTX:
        return False
    is_shared = folder.st_mode & stat.S_IWGRP and not _is_private_group(folder.st_gid)
    return bool(folder.st_mode & stat.S_IWOTH or is_shared)


def _is_private_group(number: int) -> bool:
    """Whether a group is root's or that of this user alone, which many systems make for each."""
    import grp
    import pwd

    if number == _ROOT:
        return True
    try:
        group, user = grp.getgrgid(number), pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    return group.gr_name == user and {*group.gr_mem} <= {user}


def _user_name(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
