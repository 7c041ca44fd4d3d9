"""The files that go into an image: what they are, and a digest that changes only with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class ContextFile:
    """A file of the context, or a symbolic link that stays in it.

    Parameters
    ----------
    path
        Posix, relative to the context's folder.
    mode
        0o755 where its owner may execute it, else 0o644; 0o777 of a link.
    size
        Bytes of its content, 0 of a link.
    digest
        SHA-256 of its content (of a link: of where it leads), in hexadecimal digits.
    target
        Where a link leads, as it stands in the link; None for a file.
    """

    path: str
    mode: int
    size: int
    digest: str
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """The files of a folder that go into an image, by path.

    Parameters
    ----------
    folder
        Where they lie.
    files
        In the order of their paths' bytes. Folders are not among them.
    digest
        SHA-256 over path, mode and content of all, in hexadecimal digits. Times, owners and the
        folder's own path are not in it.
    size
        Bytes of all files together.
    """

    folder: Path
    files: tuple[ContextFile, ...]
    digest: str
    size: int

    def report(self) -> str | None:
        """Say how large the context is and what makes it so; None where it is not large."""
        raise NotImplementedError


def read_context(folder: Path, ignore: str, *, cache: Path | None = None) -> Context:
    """Read the files of a folder that an ignore file leaves in.

    Parameters
    ----------
    folder
        The project's folder.
    ignore
        The content of the ignore file, in Docker's rules. Neither it nor a Dockerfile is left out
        by itself.
    cache
        A folder for what was hashed before, ``.distlaunch/cache`` of the project as a rule. What
        is in it never changes the result.

    Raises
    ------
    ContextError
        With a line for each file that cannot or must not go into an image: unreadable ones,
        sockets and devices, links that lead out, keys and other secrets.
    ImageError
        If the ignore file holds a pattern that cannot be read.
    """
    raise NotImplementedError
