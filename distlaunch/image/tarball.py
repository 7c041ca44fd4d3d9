"""A tar of which the same content gives the same bytes, gzipped on all cores and hashed on the way.

Nothing of a machine or a moment is in it, no times and no owners, and its entries stand in the
order in which they were added. The tar itself is the same on every Python. What zlib makes of it is
the same wherever Python has the same zlib; another one (zlib-ng, as in some distributions)
compresses otherwise, so there the digest differs while the `diff_id` does not.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
import zlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from distlaunch.errors import ImageError

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

_BLOCK = 1 << 20  # bytes that one core compresses at a time; decides what the digest is
_MOST_CORES = 8
_HEADER = (
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"  # RFC 1952: no name, no time, quick, any system
)
_FOLDER_MODE = 0o755
_WHITEOUT = ".wh."  # what a layer begins the name of a file with that it takes away
_OPAQUE = ".wh..wh..opq"


@dataclass(frozen=True, slots=True)
class Digests:
    """What a tar has become: its digests as ``sha256:…``, and the bytes of the gzipped file."""

    digest: str
    diff_id: str
    size: int


class Tarball:
    """A gzipped tar that is being written; a context manager, which removes what was broken off.

    Parameters
    ----------
    file
        Where to write to.
    level
        Of the compression, 1 to 9.

    Raises
    ------
    ImageError
        If it cannot be written, here and in all methods.
    """

    def __init__(self, file: Path, *, level: int) -> None:
        self._file = file
        try:
            self._gzip = _Gzip(file.open("wb"), level)
        except OSError as problem:
            raise self._cannot(problem) from problem
        self._folders: set[str] = set()

    def add_folders_of(self, path: str, *, below: str = "") -> None:
        """Add the folders that a path lies in, those that are not there yet, in their order.

        Parameters
        ----------
        below
            A folder that the image has, which is left as it is.
        """
        parts = path.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            folder = "/".join(parts[:depth])
            if folder not in self._folders and not f"{below}/".startswith(f"{folder}/"):
                self._folders.add(folder)
                self._add(_entry(folder, tarfile.DIRTYPE, _FOLDER_MODE))

    def add_link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        entry = _entry(path, tarfile.SYMTYPE, 0o777)
        entry.linkname = target
        self._add(entry)

    def add_file(self, path: str, mode: int, size: int, content: IO[bytes]) -> None:
        """Add a file of a size that is known; fewer bytes in `content` are an `EOFError`."""
        entry = _entry(path, tarfile.REGTYPE, mode)
        entry.size = size
        self._add(entry)
        left = size
        while left:
            data = content.read(min(left, _BLOCK))
            if not data:
                raise EOFError(f"{path} has {left:,} bytes less than {size:,}")
            self._write(data)
            left -= len(data)
        self._write(bytes(-size % tarfile.BLOCKSIZE))

    def take_away(self, path: str) -> None:
        """Have what the layers below have under a path be gone."""
        folder, slash, name = path.rpartition("/")
        self._write_entry(_entry(f"{folder}{slash}{_WHITEOUT}{name}", tarfile.REGTYPE, 0o644))

    def replace_folder(self, folder: str) -> None:
        """Have a folder hold only what this layer has of it (OCI image spec, opaque whiteouts)."""
        self._write_entry(_entry(f"{folder}/{_OPAQUE}", tarfile.REGTYPE, 0o644))

    def finish(self) -> Digests:
        """Write what is left and return what it has become."""
        self._write(bytes(2 * tarfile.BLOCKSIZE))
        try:
            return self._gzip.finish()
        except _CannotWriteError as problem:
            raise self._cannot(problem.why) from problem

    def _add(self, entry: tarfile.TarInfo) -> None:
        if entry.name.rpartition("/")[2].startswith(_WHITEOUT):
            raise ImageError(
                f"{entry.name}: in an image a name that begins with '{_WHITEOUT}' takes a file "
                "away; give it another name"
            )
        self._write_entry(entry)

    def _write_entry(self, entry: tarfile.TarInfo) -> None:
        self._write(entry.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))

    def _write(self, data: bytes) -> None:
        try:
            self._gzip.write(data)
        except _CannotWriteError as problem:
            raise self._cannot(problem.why) from problem

    def _cannot(self, problem: OSError) -> ImageError:
        why = (problem.strerror or str(problem)).lower()
        return ImageError(f"{self._file}: a layer cannot be written ({why}); make room there")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._gzip.close()
        if kind is not None:
            self._file.unlink(missing_ok=True)


class _CannotWriteError(Exception):
    """The layer's own file cannot be written, which is not to be mixed up with one that is read."""

    def __init__(self, why: OSError) -> None:
        super().__init__(str(why))
        self.why = why


class _Gzip:
    """One gzip member, whose blocks are compressed apart and joined (RFC 1951, empty blocks)."""

    def __init__(self, file: IO[bytes], level: int) -> None:
        self._file = file
        self._level = level
        self._pool = ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_CORES))
        self._most = 2 * self._pool._max_workers  # noqa: SLF001
        self._under_way: deque[Future[bytes]] = deque()
        self._pending = bytearray()
        self._plain = hashlib.sha256()
        self._packed = hashlib.sha256()
        self._crc = self._length = self._size = 0
        self._put(_HEADER)

    def write(self, data: bytes) -> None:
        self._plain.update(data)
        self._crc = zlib.crc32(data, self._crc)
        self._length += len(data)
        self._pending += data
        while len(self._pending) >= _BLOCK:
            self._hand_out(bytes(self._pending[:_BLOCK]))
            del self._pending[:_BLOCK]

    def finish(self) -> Digests:
        self._hand_out(bytes(self._pending), is_last=True)
        while self._under_way:
            self._put(self._under_way.popleft().result())
        self._put(self._crc.to_bytes(4, "little"))
        self._put((self._length % (1 << 32)).to_bytes(4, "little"))
        try:
            self._file.flush()
        except OSError as problem:
            raise _CannotWriteError(problem) from problem
        return Digests(
            f"sha256:{self._packed.hexdigest()}", f"sha256:{self._plain.hexdigest()}", self._size
        )

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        with suppress(OSError):  # `finish` has written all; without it nothing is kept
            self._file.close()

    def _hand_out(self, block: bytes, *, is_last: bool = False) -> None:
        self._under_way.append(self._pool.submit(_deflate, block, self._level, is_last=is_last))
        while len(self._under_way) > self._most:
            self._put(self._under_way.popleft().result())

    def _put(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as problem:
            raise _CannotWriteError(problem) from problem
        self._packed.update(data)
        self._size += len(data)


def _deflate(block: bytes, level: int, *, is_last: bool) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(block) + packer.flush(zlib.Z_FINISH if is_last else zlib.Z_SYNC_FLUSH)


def _entry(path: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type = kind
    entry.mode = mode
    return entry
