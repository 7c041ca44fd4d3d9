"""Blobs: layers and configs, by digest."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CHUNK = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Blob:
    """Content that can be read more than once.

    Parameters
    ----------
    digest
        ``sha256:…``.
    size
        Bytes.
    chunks
        Returns an iterator over the content from its beginning.
    """

    digest: str
    size: int
    chunks: Callable[[], Iterator[bytes]]

    @classmethod
    def of_bytes(cls, data: bytes) -> Blob:
        """Return a blob in memory."""
        return cls(digest_of(data), len(data), lambda: iter([data]))

    @classmethod
    def of_file(cls, file: Path, digest: str, size: int) -> Blob:
        """Return a blob in a file."""
        return cls(digest, size, partial(_read_file, file))


def digest_of(data: bytes) -> str:
    """Return the digest of bytes, ``sha256:…``."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _read_file(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        while chunk := opened.read(CHUNK):
            yield chunk
