"""Blobs on their way into a registry, from a file or from another registry, in flat memory."""

from __future__ import annotations

import hashlib
import re
from contextlib import closing
from typing import TYPE_CHECKING, Protocol, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

import requests

from distlaunch.errors import ImageError
from distlaunch.image.registry.refusals import Refused, unreachable
from distlaunch.image.registry.transport import Broken

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from distlaunch.image.registry.transport import Transport

Chunks: TypeAlias = (
    "Generator[bytes, None, None]"  # to be closed where they are not read to their end
)

CHUNK = 1 << 20  # bytes

_SMALL = 1 << 20  # bytes that are sent with one request, and again if that fails
_COMMIT_SECONDS = 600.0  # a registry may copy all of a blob before it answers
_BYTES = {"Content-Type": "application/octet-stream"}
_RANGE = re.compile(r"(?:bytes=)?0-([0-9]+)", re.ASCII)


class Source(Protocol):
    """Where a blob is from."""

    @property
    def digest(self) -> str: ...

    @property
    def size(self) -> int: ...

    def read_from(self, offset: int) -> Chunks:
        """Yield the blob's bytes from an offset on."""
        ...


class FileSource:
    """A blob that lies in a file."""

    def __init__(self, file: Path, digest: str, size: int) -> None:
        self.digest = digest
        self.size = size
        self._file = file

    def read_from(self, offset: int) -> Chunks:
        with self._file.open("rb") as opened:
            opened.seek(offset)
            while chunk := opened.read(CHUNK):
                yield chunk


class BytesSource:
    """A blob that is held in memory."""

    def __init__(self, data: bytes) -> None:
        self.digest = digest_of(data)
        self.size = len(data)
        self._data = data

    def read_from(self, offset: int) -> Chunks:
        for start in range(offset, self.size, CHUNK):
            yield self._data[start : start + CHUNK]


class RemoteSource:
    """A blob of another repository; a broken connection is taken up where it broke.

    The bytes are hashed as they come, each once, and an error is raised at their end where they are
    others than the digest says.
    """

    def __init__(self, transport: Transport, digest: str, size: int) -> None:
        self.digest = digest
        self.size = size
        self._transport = transport
        self._hash = hashlib.sha256()
        self._hashed = 0

    def read_from(self, offset: int) -> Chunks:
        tries = 0
        while offset < self.size:
            try:
                with closing(self._open(offset)) as chunks:
                    for chunk in chunks:
                        self._take(chunk, offset)
                        offset += len(chunk)
                        tries = 0
                        yield chunk
            except requests.RequestException as problem:
                why: Exception = problem
            else:
                if offset >= self.size:
                    break
                why = requests.ConnectionError(f"{offset:,} of {self.size:,} bytes came")
            tries += 1
            delays = self._transport.patience.delays
            if tries > len(delays):
                raise unreachable(why, self._transport.reference, tries=tries) from why
            self._transport.wait(delays[tries - 1])
        self._verify()

    def _open(self, offset: int) -> Chunks:
        headers = {"Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        response = self._transport.request(
            "get", f"blobs/{self.digest}", headers=headers, stream=True
        )
        with response:
            ahead = 0 if response.status_code == requests.codes.partial_content else offset
            for chunk in response.iter_content(CHUNK):
                yield chunk[ahead:]
                ahead = max(0, ahead - len(chunk))

    def _take(self, chunk: bytes, offset: int) -> None:
        new = chunk[max(0, self._hashed - offset) :]
        self._hash.update(new)
        self._hashed += len(new)

    def _verify(self) -> None:
        found = f"sha256:{self._hash.hexdigest()}"
        if self._hashed != self.size or found != self.digest:
            raise ImageError(
                f"{self._transport.reference.host} gave other bytes than those of {self.digest}; "
                "push that image again"
            )


def digest_of(data: bytes) -> str:
    """Return the digest of bytes, ``sha256:…``."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def fetch(transport: Transport, digest: str, size: int) -> bytes:
    """Return a blob that is small, as a config is; it is verified.

    Raises
    ------
    ImageError
        If it cannot be had.
    """
    return b"".join(RemoteSource(transport, digest, size).read_from(0))


def upload(
    transport: Transport, source: Source, seen: Callable[[int], None] = lambda _: None
) -> None:
    """Send a blob; a broken connection is taken up where the registry says that it broke.

    A registry that does not say so is sent all of it again.

    Parameters
    ----------
    seen
        Told how many bytes have gone out, as they go.

    Raises
    ------
    ImageError
        If the registry refuses it, or breaks the connection too often without getting further.
    """
    place = _begin(transport)
    if source.size <= _SMALL:
        _commit(transport, place, source, b"".join(source.read_from(0)))
        seen(source.size)
        return
    offset = tries = 0
    while True:
        gone = _Gone(seen, offset)
        try:
            place = _send(transport, place, source, offset, gone.add)
            _commit(transport, place, source)
        except Broken as broken:
            tries += 1
            if tries > len(transport.patience.delays):
                raise broken.told from broken
            transport.wait(transport.patience.delays[tries - 1])
            place, reached = _where(transport, place)
            gone.correct(reached)
            tries = 0 if reached > offset else tries
            offset = reached
        else:
            return


class _Gone:
    """How many bytes of a blob have gone out; some of them may not have arrived."""

    def __init__(self, seen: Callable[[int], None], offset: int) -> None:
        self._seen = seen
        self._offset = offset

    def add(self, size: int) -> None:
        self._offset += size
        self._seen(size)

    def correct(self, reached: int) -> None:
        self._seen(reached - self._offset)


class _Body:
    """What is left of a blob, of a length that is known before."""

    def __init__(self, chunks: Iterator[bytes], size: int) -> None:
        self._chunks = chunks
        self._size = size

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks

    def __len__(self) -> int:
        return self._size


def _begin(transport: Transport) -> str:
    return _location(transport.request("post", "blobs/uploads/"))


def _send(
    transport: Transport, place: str, source: Source, offset: int, seen: Callable[[int], None]
) -> str:
    if offset == source.size:
        return place
    headers = dict(_BYTES)
    if offset:
        headers["Content-Range"] = f"{offset}-{source.size - 1}"
    with closing(source.read_from(offset)) as chunks:
        body = _Body(transport.counted(chunks, seen), source.size - offset)
        return _location(transport.request("patch", place, data=body, headers=headers))


def _commit(transport: Transport, place: str, source: Source, data: bytes = b"") -> None:
    parts = urlsplit(place)
    query = urlencode([*parse_qsl(parts.query), ("digest", source.digest)])
    timeout = (transport.patience.connect, max(transport.patience.read, _COMMIT_SECONDS))
    try:
        transport.request(
            "put",
            parts._replace(query=query).geturl(),
            data=data,
            headers=_BYTES,
            timeout=timeout,
        )
    except Refused as refusal:
        # An answer that was lost: what was asked again had been done.
        if refusal.status not in (404, 416) or not is_there(transport, source.digest):
            raise


def is_there(transport: Transport, digest: str) -> bool:
    """Whether the repository has a blob."""
    try:
        transport.request("head", f"blobs/{digest}")
    except Refused as refusal:
        if refusal.status != 404:
            raise
        return False
    return True


def _where(transport: Transport, place: str) -> tuple[str, int]:
    """Return where an upload that broke goes on, and from which offset."""
    try:
        response = transport.request("get", place)
    except Refused:
        return _begin(transport), 0
    found = _RANGE.fullmatch(response.headers.get("Range", ""))
    if found is None or found[1] == "0":  # which stands for one byte and for none
        return _begin(transport), 0
    return _location(response), int(found[1]) + 1


def _location(response: requests.Response) -> str:
    return requests.compat.urljoin(response.url, response.headers["Location"])
