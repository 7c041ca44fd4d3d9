"""A project's files as a layer of an image: the same files give the same bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.image.context import Context


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer that lies in a file, ready to be sent.

    Parameters
    ----------
    file
        A tar, gzipped.
    digest
        ``sha256:…`` of the file.
    diff_id
        ``sha256:…`` of the tar, by which an image's config knows it.
    size
        Of the file, in bytes.
    created_by
        What the image's history says of it.
    """

    file: Path
    digest: str
    diff_id: str
    size: int
    created_by: str


def code_layer(context: Context, file: Path, *, root: str = "/app") -> Layer:
    """Write a project's files as a layer.

    Parameters
    ----------
    context
        The files.
    file
        Where to write to.
    root
        The folder in the image.

    Raises
    ------
    ImageError
        If a file is no longer what the context says, or `file` cannot be written.
    """
    raise NotImplementedError
