"""Buckets as folders: `gs://BUCKET/PATH` is the file `STORAGE/BUCKET/PATH`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", re.ASCII)


def is_bucket_name(name: str) -> bool:
    """Return whether Cloud Storage accepts a name for a bucket."""
    return _BUCKET.fullmatch(name) is not None


def local_path(storage: Path, uri: str) -> Path:
    """Return the file or folder of a `gs://` URI below the folder of the buckets.

    Raises
    ------
    ValueError
        If the URI has no valid bucket name, or leads out of its bucket.
    """
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    parts = name.removesuffix("/").split("/") if name else []
    if not is_bucket_name(bucket):
        raise ValueError(f"invalid bucket name: {bucket!r}")
    if "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"not a path in a bucket: {name!r}")
    root = (storage / bucket).resolve()
    path = root.joinpath(*parts)
    if not path.resolve().is_relative_to(root):
        raise ValueError(f"a symlink leads out of the bucket: {name!r}")
    return path
