"""Files of text, read so that every failure is a line with their name."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from distlaunch.errors import DistlaunchError
from distlaunch.job.validation import refusal, shown
from distlaunch.job.yaml_document import Place, YamlProblem

if TYPE_CHECKING:
    from pathlib import Path


_LARGEST = 1_000_000  # bytes; YAML of this size takes seconds to read


def read_text(path: Path, *, remedy: str = "") -> str:
    """Read a file of UTF-8 text.

    Parameters
    ----------
    path
        The file.
    remedy
        What ends the message where there is none.

    Raises
    ------
    DistlaunchError
        If there is no such file, or none that can be read, or one too large for what it is.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise DistlaunchError(f"{shown(path)}: not a file; expected text in YAML")
        if found.st_size > _LARGEST:
            raise DistlaunchError(
                f"{shown(path)}: too large: {found.st_size:,} bytes, expected at most {_LARGEST:,}"
            )
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        if path.is_symlink():
            raise DistlaunchError(
                f"{shown(path)}: a link that leads nowhere; mend or remove it"
            ) from None
        raise DistlaunchError(f"{shown(path)}: no such file{remedy}") from None
    except UnicodeDecodeError as problem:
        before = problem.object[: problem.start]
        column = len(before) - (before.rfind(b"\n") + 1) + 1
        place = Place(before.count(b"\n") + 1, column)
        raise refusal(path, [YamlProblem(place, "not UTF-8 text")]) from None
    except OSError as problem:
        raise DistlaunchError(f"{shown(path)}: {problem.strerror or problem}") from None
