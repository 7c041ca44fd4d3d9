"""Download the files of a job's folder."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch.errors import DistlaunchError, os_reason
from distlaunch.google import storage

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlaunch.google.client import Session

PARTS = ("model", "checkpoints", "logs", "export")
_AT_ONCE = 4  # files


@dataclass(frozen=True, slots=True)
class Fetched:
    """What was downloaded."""

    files: int
    new_bytes: int  # those that were not there already


def fetch_folder(
    session: Session, uri: str, output: Path, progress: Callable[[int, int, int], None]
) -> Fetched:
    """Download the files in ``gs://BUCKET/PATH`` to a folder, resuming what was interrupted.

    `progress` is called with the files that are done, all files, and the bytes of all.

    Raises
    ------
    DistlaunchError
        If there are no files, a name leaves the folder, or one cannot be read or written.
    """
    blobs = storage.list_files(session, uri)
    if not blobs:
        raise DistlaunchError(f"{uri}: no files are there")
    prefix = uri.removeprefix("gs://").partition("/")[2].rstrip("/")
    paths = [_path_in(output, blob.name.removeprefix(prefix).lstrip("/")) for blob in blobs]
    total, new_bytes = sum(blob.size for blob in blobs), 0
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        downloads = [
            pool.submit(storage.download, session, blob, path)
            for blob, path in zip(blobs, paths, strict=True)
        ]
        try:
            for done, download in enumerate(as_completed(downloads), 1):
                new_bytes += download.result()
                progress(done, len(blobs), total)
        except OSError as error:
            raise _not_writable(output, error) from None
        finally:
            pool.shutdown(cancel_futures=True)
    return Fetched(len(blobs), new_bytes)


def copy_folder(source: Path, output: Path) -> Fetched:
    """Copy the files of a local run; DistlaunchError is raised if that fails."""
    if not source.is_dir():
        raise DistlaunchError(f"{source}: no files are there")
    try:
        shutil.copytree(source, output, dirs_exist_ok=True)
    except OSError as error:
        raise _not_writable(output, error) from None
    files = [path for path in source.rglob("*") if path.is_file()]
    return Fetched(len(files), sum(path.stat().st_size for path in files))


def _path_in(output: Path, name: str) -> Path:
    """Return the path for a file's name, which must not leave the folder."""
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts:
        raise DistlaunchError(f"{name!r}: the name of a file leaves the folder {output}")
    return output / name


def _not_writable(output: Path, error: OSError) -> DistlaunchError:
    return DistlaunchError(f"{output}: cannot be written ({os_reason(error)})")
