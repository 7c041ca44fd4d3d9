"""Which files of a folder an ignore file leaves out, by Docker's rules.

They are told in Docker's reference (https://docs.docker.com/build/concepts/context/#dockerignore-files)
and made exact by https://github.com/moby/patternmatcher: patterns are matched against the path from
the folder's root and against those of all folders above it, and the last one that matches wins.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Below:
    """What holds for everything in a folder, before its own name is looked at."""

    last: int = -1


class IgnoreRules:
    """The patterns of an ignore file.

    Parameters
    ----------
    text
        The file's content; nothing is ignored where it is empty.

    Raises
    ------
    ImageError
        If a pattern cannot be read, with the number of its line.
    """

    def __init__(self, text: str) -> None:
        raise NotImplementedError

    def ignores(self, path: str) -> bool:
        """Whether a path, posix and relative to the context's root, is left out."""
        raise NotImplementedError
