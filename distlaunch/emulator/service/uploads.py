"""Uploads to the storage: at once, with metadata before the content, or resumed piece by piece.

https://cloud.google.com/storage/docs/uploads-downloads
"""

from __future__ import annotations

import json
import os
import re
import secrets
import threading
from dataclasses import dataclass, field
from email.message import Message
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from distlaunch.emulator.service.answers import Answer, Refused
from distlaunch.emulator.service.buckets import StorageRefused, hashes_of
from distlaunch.emulator.service.storage_objects import check_hashes, conditions, resource, settable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from distlaunch.emulator.service.answers import Request
    from distlaunch.emulator.service.buckets import Buckets, Stored

GRAIN = 256 * 1024
"""All pieces of a resumed upload but the last are multiples of this."""

_PIECE = 1 << 20
_RANGE = re.compile(
    r"bytes (\*|(?P<first>\d{1,18})-(?P<last>\d{1,18}))/(\*|(?P<total>\d{1,18}))", re.ASCII
)
_HASH = re.compile(r"(crc32c|md5)=([A-Za-z0-9+/=]+)")


@dataclass(slots=True)
class _Session:
    """A resumable upload that goes on."""

    bucket: str
    name: str
    said: Mapping[str, Any]
    options: Mapping[str, str]
    path: Path
    size: int = 0
    done: Stored | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class Uploads:
    """Takes uploads in.

    Parameters
    ----------
    buckets
        Where they go.
    """

    def __init__(self, buckets: Buckets) -> None:
        self._buckets = buckets
        self._sessions: dict[str, _Session] = {}

    def begin(self, request: Request, bucket: str) -> Answer:
        """Answer the request that an upload begins with, which may be all of it.

        Raises
        ------
        Refused
            If it cannot be.
        """
        kind = request.options.get("uploadType")
        if kind == "media":
            said = {"contentType": request.headers.get("content-type")}
            return self.whole(request, bucket, request.options.get("name"), said)
        if kind == "multipart":
            return self._multipart(request, bucket)
        if kind == "resumable":
            return self._resumable(request, bucket)
        raise StorageRefused(400, "invalid", f"Invalid upload type: {kind!r}")

    def whole(
        self, request: Request, bucket: str, name: str | None, said: Mapping[str, Any]
    ) -> Answer:
        """Take in the content of a request as an object.

        Raises
        ------
        Refused
            If it cannot be.
        """
        file, path = self._buckets.upload()
        with file:
            while piece := request.body.read(_PIECE):
                file.write(piece)
        said = {**said, **_hashes_in(request.headers.get("x-goog-hash", ""))}
        return self._told(self._put(bucket, name, path, said, request.options), request)

    def go_on(self, request: Request) -> Answer:
        """Take in a piece of a resumable upload, or tell how far it has come.

        Raises
        ------
        Refused
            If there is no such upload, or this is no piece of it.
        """
        session = self._sessions.get(request.options["upload_id"])
        if session is None:
            raise StorageRefused(404, "notFound", "No such upload session; start it again.")
        with session.lock:
            if request.method == "DELETE":
                return self._cancelled(request, session)
            if session.done is None:
                self._take_piece(request, session)
            if session.done is not None:
                return self._told(session.done, request)
            headers = {"Range": f"bytes=0-{session.size - 1}"} if session.size else {}
            return Answer(b"", 308, headers)

    def _multipart(self, request: Request, bucket: str) -> Answer:
        head, content = _parts(request)
        said = _object(head)
        file, path = self._buckets.upload()
        with file:
            file.write(content[1])
        said.setdefault("contentType", content[0])
        name = request.options.get("name") or said.get("name")
        return self._told(self._put(bucket, name, path, said, request.options), request)

    def _resumable(self, request: Request, bucket: str) -> Answer:
        said = request.json()
        kind = request.headers.get("x-upload-content-type")
        if kind:
            said.setdefault("contentType", kind)
        name = request.options.get("name") or said.get("name")
        if not isinstance(name, str) or not name:
            raise _no_name()
        # What will be refused at the end is refused at once too, before the content is sent.
        conditions(request.options)(self._buckets.find(bucket, name))
        file, path = self._buckets.upload()
        file.close()
        upload = secrets.token_urlsafe(24)
        self._sessions[upload] = _Session(bucket, name, said, request.options, path)
        place = f"{request.origin}/upload/storage/v1/b/{bucket}/o?uploadType=resumable"
        place += f"&name={quote(name, safe='')}&upload_id={upload}"
        return Answer(b"", 200, {"Location": place, "X-GUploader-UploadID": upload})

    def _take_piece(self, request: Request, session: _Session) -> None:
        text = request.headers.get("content-range")
        found = _RANGE.fullmatch(text) if text else None
        if text and found is None:
            raise StorageRefused(400, "invalid", f"Invalid Content-Range: {text!r}")
        first = int(found["first"] or session.size) if found else 0
        total = int(found["total"]) if found and found["total"] else None
        if first > session.size:
            told = (
                "Invalid request. According to the Content-Range header, the upload offset is "
                f"{first} byte(s), which exceeds already uploaded size of {session.size} byte(s)."
            )
            raise StorageRefused(503, "backendError", told)
        end = self._written(request, session, first)
        is_last = found is None or (total is not None and end == total)
        if found is None or found["first"]:
            session.size = end if is_last else max(session.size, end - end % GRAIN)
        if is_last and (found is None or session.size == total):
            self._finish(session)

    def _written(self, request: Request, session: _Session, at: int) -> int:
        """Write the request's content and return where it ends; a broken one counts as it is."""
        try:
            with session.path.open("r+b") as file:
                file.seek(at)
                while piece := request.body.read(_PIECE):
                    file.write(piece)
                    at += len(piece)
        except (Refused, OSError):
            session.size = max(session.size, at - at % GRAIN)
            raise
        return at

    def _finish(self, session: _Session) -> None:
        os.truncate(session.path, session.size)
        session.done = self._put(
            session.bucket, session.name, session.path, session.said, session.options
        )

    def _cancelled(self, request: Request, session: _Session) -> Answer:
        session.path.unlink(missing_ok=True)
        self._sessions.pop(request.options["upload_id"], None)
        return Answer(b"", 499)

    def _put(
        self,
        bucket: str,
        name: str | None,
        path: Path,
        said: Mapping[str, Any],
        options: Mapping[str, str],
    ) -> Stored:
        try:
            if not isinstance(name, str) or not name:
                raise _no_name()
            hashes = hashes_of(path)
            check_hashes(hashes, said)
            known = {key: value for key, value in settable(said).items() if value is not None}
            return self._buckets.put(
                bucket, name, path, hashes=hashes, said=known, check=conditions(options)
            )
        finally:
            path.unlink(missing_ok=True)

    def _told(self, stored: Stored, request: Request) -> Answer:
        return Answer(resource(self._buckets, stored, request.origin))


def _parts(request: Request) -> tuple[bytes, tuple[str | None, bytes]]:
    """Return the two parts of multipart/related: the metadata, and the content with its type."""
    header = Message()
    header["Content-Type"] = request.headers.get("content-type", "")
    boundary = header.get_param("boundary")
    if not isinstance(boundary, str):
        raise StorageRefused(400, "invalid", "Multipart content needs a boundary.")
    body, mark = b"\r\n" + request.body.read(), b"\r\n--" + boundary.encode()
    pieces = body.split(mark)
    if len(pieces) != 4 or not pieces[3].startswith(b"--"):
        raise StorageRefused(400, "invalid", "Multipart content must have two parts.")
    (_, head), (kind, content) = (_split(piece) for piece in pieces[1:3])
    return head, (kind, content)


def _split(part: bytes) -> tuple[str | None, bytes]:
    head, _, content = part.partition(b"\r\n\r\n")
    found = re.search(rb"(?im)^content-type:[ \t]*([^\r\n]+)", head)
    return (found[1].decode("latin-1").strip() if found else None), content


def _object(head: bytes) -> dict[str, Any]:
    try:
        said = json.loads(head)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise StorageRefused(400, "parseError", "Parse Error: the metadata is not JSON")
    return said


def _hashes_in(header: str) -> dict[str, str]:
    names = {"crc32c": "crc32c", "md5": "md5Hash"}
    return {names[kind]: value for kind, value in _HASH.findall(header)}


def _no_name() -> StorageRefused:
    return StorageRefused(400, "required", "Required parameter: name")
