"""Download the files of a job's folder."""

from __future__ import annotations

import filecmp
import shlex
import shutil
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from distlaunch import files
from distlaunch.background import BackgroundTask
from distlaunch.engines.vertex import storage
from distlaunch.errors import DistlaunchError, os_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from distlaunch.engines.vertex.client import Session

_AT_ONCE = 4  # files
_LOOK = 0.1  # seconds between two looks at the downloads


@dataclass(frozen=True, slots=True)
class Fetched:
    """What was downloaded."""

    files: int
    new_bytes: int  # those that were not there already


class DownloadProgress(NamedTuple):
    """How much of a folder is there."""

    bytes: int
    all_bytes: int
    files: int
    all_files: int


def fetch_folder(
    session: Session, uri: str, output: Path, on_progress: Callable[[DownloadProgress], None]
) -> Fetched:
    """Download the files in ``gs://BUCKET/PATH`` to a folder, resuming what was interrupted.

    `on_progress` is called several times per second. DistlaunchError is raised if a file's name
    leaves the folder or is that of a folder, too, or one cannot be read or written.
    """
    blobs = storage.list_files(session, uri)
    if not blobs:
        return Fetched(0, 0)
    prefix = uri.removeprefix("gs://").partition("/")[2].rstrip("/")
    paths = [_path_in(output, blob.name.removeprefix(prefix).lstrip("/")) for blob in blobs]
    if both := {*paths} & {parent for path in paths for parent in path.parents}:
        name = f"{uri.rstrip('/')}/{min(both).relative_to(output).as_posix()}"
        raise DistlaunchError(
            f"{name} is a file, and there are files in {name}/, which no folder can hold",
            remedy=f"rename it with 'gcloud storage mv {shlex.join([name, f'{name}.file'])}'",
        )
    downloads = _Downloads(session, list(zip(blobs, paths, strict=True)))
    with _writing(output, paths):
        new_bytes = downloads.run(on_progress)
    return Fetched(len(blobs), new_bytes)


class _Downloads:
    """Files that daemon threads download, so that Ctrl-C need not wait for them."""

    def __init__(self, session: Session, targets: Sequence[tuple[Any, Path]]) -> None:
        self._session = session
        self._waiting = deque(targets)
        self._active: dict[Path, Any] = {}
        self._done: list[int] = []  # bytes of each file
        self._all_bytes, self._all_files = sum(blob.size for blob, _ in targets), len(targets)

    def run(self, on_progress: Callable[[DownloadProgress], None]) -> int:
        """Download all files, and return the bytes that were not there already."""
        threads = [BackgroundTask(self._download_next) for _ in range(_AT_ONCE)]
        try:
            while True:
                ended = [thread for thread in threads if thread.has_ended]
                new_bytes = sum(thread.result() for thread in ended)
                on_progress(self._progress())
                if len(ended) == len(threads):
                    return new_bytes
                time.sleep(_LOOK)
        finally:
            self._waiting.clear()

    def _download_next(self) -> int:
        """Download files until none is waiting, and return the bytes that are new."""
        new_bytes = 0
        while True:
            try:
                blob, path = self._waiting.popleft()
            except IndexError:
                return new_bytes
            self._active[path] = blob
            new_bytes += storage.download(self._session, blob, path)
            self._done.append(blob.size)
            del self._active[path]

    def _progress(self) -> DownloadProgress:
        active = [storage.downloaded_bytes(blob, path) for path, blob in [*self._active.items()]]
        done = [*self._done]
        total = min(sum(done) + sum(active), self._all_bytes)
        return DownloadProgress(total, self._all_bytes, len(done), self._all_files)


def copy_folder(source: Path, output: Path) -> Fetched:
    """Copy the files of a local run; DistlaunchError is raised if that fails."""
    sources = [path for path in source.rglob("*") if path.is_file()]
    if not sources:
        return Fetched(0, 0)
    targets = [output / path.relative_to(source) for path in sources]
    new_bytes = 0
    with _writing(output, targets):
        for path in sources:
            files.refuse_symlinks(path, below=source.parent)
        for path, target in zip(sources, targets, strict=True):
            if not target.exists() or not filecmp.cmp(path, target, shallow=False):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
                new_bytes += path.stat().st_size
    return Fetched(len(sources), new_bytes)


def _path_in(output: Path, name: str) -> Path:
    """Return the path for a file's name, which must not leave the folder."""
    parts = Path(name).parts
    if not parts or Path(name).anchor or ".." in parts:
        raise DistlaunchError(f"{name!r}: the name of a file leaves the folder {output}")
    return output / name


@contextmanager
def _writing(output: Path, paths: Sequence[Path]) -> Iterator[None]:
    """Create and lock a folder for files in it, none of which may be behind a symlink."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        for path in paths:
            files.refuse_symlinks(path, below=output)
        with files.lock(output, wait=False):
            yield
    except BlockingIOError:
        raise DistlaunchError(
            f"{output}: another 'distlaunch fetch' writes into this folder; wait for it"
        ) from None
    except OSError as error:
        raise DistlaunchError(f"{output}: cannot be written ({os_reason(error)})") from None
