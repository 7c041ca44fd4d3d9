"""Cloud Storage's JSON API for objects, and the plain addresses of objects.

https://cloud.google.com/storage/docs/json_api/v1. TensorFlow reads objects by the XML API's
addresses, ``/BUCKET/OBJECT``, and does the rest by the JSON API.
"""

from __future__ import annotations

import base64
import re
import shutil
from contextlib import suppress
from email.utils import formatdate
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from distlaunch.emulator.service.answers import Answer
from distlaunch.emulator.service.bucket_service import BucketService
from distlaunch.emulator.service.buckets import StorageRefused, hashes_of, no_storage_method
from distlaunch.emulator.service.storage_addresses import BUCKET, OBJECT, OBJECTS, PLAIN, UPLOAD
from distlaunch.emulator.service.storage_objects import (
    conditions,
    etag,
    of_generation,
    resource,
    settable,
)
from distlaunch.emulator.service.uploads import Uploads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from distlaunch.emulator.lacks import Lacks
    from distlaunch.emulator.service.answers import Request
    from distlaunch.emulator.service.buckets import Buckets, Stored

MOST_ON_A_PAGE = 1_000
MOST_COMPOSED = 32

_RANGE = re.compile(r"bytes=(?P<first>\d{0,18})-(?P<last>\d{0,18})", re.ASCII)


class StorageService:
    """Answers in Cloud Storage's place.

    Parameters
    ----------
    buckets
        Where the objects are.
    region
        Where all buckets are said to be, unless the project lacks such.
    lacks
        What the project lacks.
    """

    def __init__(self, buckets: Buckets, region: str, lacks: Lacks) -> None:
        self._buckets = buckets
        self._service = BucketService(buckets, region, lacks)
        self._uploads = Uploads(buckets)

    def answer(self, request: Request) -> Answer:
        """Answer a request.

        Raises
        ------
        Refused
            If it cannot be.
        """
        ways: tuple[tuple[re.Pattern[str], Callable[..., Answer]], ...] = (
            (UPLOAD, self._upload),
            (OBJECT, self._object),
            (OBJECTS, self._list),
            (BUCKET, self._service.answer),
            (PLAIN, self._plain),
        )
        for pattern, way in ways:
            found = pattern.fullmatch(request.path)
            if found is not None:
                parts = {name: unquote(part) for name, part in found.groupdict("").items()}
                if parts["bucket"]:
                    self._service.check(parts["bucket"])
                return way(request, **parts)
        raise no_storage_method(request)

    def _list(self, request: Request, *, bucket: str) -> Answer:
        if request.method != "GET":
            raise no_storage_method(request)
        options = request.options
        delimiter, size = options.get("delimiter", ""), _page_size(options)
        after = _page_token(options)
        items: list[dict[str, Any]] = []
        prefixes: list[str] = []
        last = after
        for name in sorted(self._asked_for(bucket, options)):
            folder = _folder(name, options.get("prefix", ""), delimiter)
            key = folder or name
            if key <= last or (folder and prefixes and prefixes[-1] == folder):
                continue
            if len(items) + len(prefixes) == size:
                token = base64.urlsafe_b64encode(last.encode()).decode()
                return Answer(_page(items, prefixes) | {"nextPageToken": token})
            last = key
            if folder:
                prefixes.append(folder)
            else:
                with suppress(StorageRefused):  # it was deleted just now
                    stored = self._buckets.need(bucket, name)
                    items.append(resource(self._buckets, stored, request.origin))
        return Answer(_page(items, prefixes))

    def _asked_for(self, bucket: str, options: Mapping[str, str]) -> list[str]:
        first, end = options.get("startOffset", ""), options.get("endOffset", "")
        return [
            name
            for name in self._buckets.walk(bucket, options.get("prefix", ""))
            if name >= first and (not end or name < end)
        ]

    def _object(self, request: Request, **parts: str) -> Answer:
        bucket, name, verb = parts["bucket"], parts["name"], parts["verb"]
        if verb and request.method in ("POST", "PUT"):
            return self._made_of_others(request, bucket, name, parts)
        match "" if verb else request.method:
            case "GET" | "HEAD" if parts["way"] or request.options.get("alt") == "media":
                return self._content(request, bucket, name)
            case "GET":
                stored = self._asked(request, bucket, name)
                return Answer(
                    resource(self._buckets, stored, request.origin), headers={"ETag": etag(stored)}
                )
            case "DELETE":
                self._asked(request, bucket, name)
                self._buckets.delete(bucket, name, conditions(request.options))
                return Answer(b"", 204)
            case "PATCH" | "PUT":
                stored = self._asked(request, bucket, name)
                said = _merged(stored, settable(request.json()))
                changed = self._buckets.describe(stored, said, conditions(request.options))
                return Answer(resource(self._buckets, changed, request.origin))
        raise no_storage_method(request)

    def _made_of_others(
        self, request: Request, bucket: str, name: str, parts: Mapping[str, str]
    ) -> Answer:
        if parts["verb"] == "/compose":
            return Answer(self._composed(request, bucket, name))
        stored = self._buckets.need(bucket, name)
        of_generation(stored, request.options, "sourceGeneration")
        conditions(request.options, of_source=True)(stored)
        said = settable(request.json()) or dict(stored.attributes.said)
        made = self._joined(request, [stored], parts["to_bucket"], parts["to_name"], said)
        if parts["verb"].startswith("/copyTo"):
            return Answer(made)
        size = str(stored.size)
        return Answer(
            {
                "kind": "storage#rewriteResponse",
                "totalBytesRewritten": size,
                "objectSize": size,
                "done": True,
                "resource": made,
            }
        )

    def _composed(self, request: Request, bucket: str, name: str) -> dict[str, Any]:
        asked = request.json()
        named = asked.get("sourceObjects")
        named = [_said(each) for each in named] if isinstance(named, list) else []
        if not 1 <= len(named) <= MOST_COMPOSED:
            text = f"The number of source components must be from 1 to {MOST_COMPOSED}."
            raise StorageRefused(400, "invalid", text)
        sources = []
        for each in named:
            stored = self._buckets.need(bucket, str(each.get("name", "")))
            conditions(_texts(each.get("objectPreconditions")))(stored)
            sources.append(of_generation(stored, _texts(each)))
        said = settable(_said(asked.get("destination")))
        return self._joined(request, sources, bucket, name, said)

    def _joined(
        self,
        request: Request,
        sources: list[Stored],
        bucket: str,
        name: str,
        said: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Make an object of others, one after the other, and return its JSON."""
        file, path = self._buckets.upload()
        with file:
            for each in sources:
                if not each.name.endswith("/"):
                    with each.path.open("rb") as source:
                        shutil.copyfileobj(source, file)
        made = self._buckets.put(
            bucket,
            name,
            path,
            hashes=hashes_of(path),
            said=said,
            check=conditions(request.options),
        )
        return resource(self._buckets, made, request.origin)

    def _upload(self, request: Request, *, bucket: str) -> Answer:
        if "upload_id" in request.options and request.method in ("PUT", "POST", "DELETE"):
            return self._uploads.go_on(request)
        if request.method != "POST":
            raise no_storage_method(request)
        return self._uploads.begin(request, bucket)

    def _plain(self, request: Request, *, bucket: str, name: str) -> Answer:
        """Answer by the XML API's address of an object."""
        match request.method:
            case "GET" | "HEAD":
                return self._content(request, bucket, name)
            case "PUT":
                said = {"contentType": request.headers.get("content-type")}
                self._uploads.whole(request, bucket, name, said)
                return Answer(b"", 200)
            case "DELETE":
                self._buckets.delete(bucket, name, conditions(request.options))
                return Answer(b"", 204)
        raise no_storage_method(request)

    def _asked(self, request: Request, bucket: str, name: str) -> Stored:
        stored = of_generation(self._buckets.need(bucket, name), request.options)
        conditions(request.options)(stored)
        return stored

    def _content(self, request: Request, bucket: str, name: str) -> Answer:
        stored = self._asked(request, bucket, name)
        found = _RANGE.fullmatch(request.headers.get("range", ""))
        first, last = _span(found, stored.size)
        if found and first > last:
            text = "The requested range cannot be satisfied."
            headers = {"Content-Range": f"bytes */{stored.size}"}
            return Answer(text.encode(), 416, headers)
        headers = self._content_headers(stored)
        if found:
            headers["Content-Range"] = f"bytes {first}-{last}/{stored.size}"
        if name.endswith("/"):
            return Answer(b"", 200, headers)
        try:
            file = stored.path.open("rb")
        except OSError:
            raise StorageRefused(404, "notFound", f"No such object: {bucket}/{name}") from None
        file.seek(first)
        return Answer(file, 206 if found else 200, headers, last - first + 1)

    def _content_headers(self, stored: Stored) -> dict[str, str]:
        hashes, said = self._buckets.hashes(stored), stored.attributes.said
        headers = {
            "Content-Type": stored.content_type,
            "ETag": etag(stored),
            "Last-Modified": formatdate(stored.generation / 1e6, usegmt=True),
            "X-Goog-Generation": str(stored.generation),
            "X-Goog-Metageneration": str(stored.attributes.metageneration),
            "X-Goog-Hash": f"crc32c={hashes.crc32c},md5={hashes.md5}",
            "X-Goog-Stored-Content-Length": str(stored.size),
            "X-Goog-Stored-Content-Encoding": str(said.get("contentEncoding") or "identity"),
            "Accept-Ranges": "bytes",
        }
        if said.get("contentEncoding"):
            headers["Content-Encoding"] = str(said["contentEncoding"])
        return headers


def _said(each: object) -> dict[str, Any]:
    """Return what a part of a request says, without what it leaves open."""
    said = each if isinstance(each, dict) else {}
    return {key: value for key, value in said.items() if value is not None}


def _texts(each: object) -> dict[str, str]:
    return {key: str(value) for key, value in _said(each).items()}


def _page(items: list[dict[str, Any]], prefixes: list[str]) -> dict[str, Any]:
    told: dict[str, Any] = {"kind": "storage#objects"}
    if items:
        told["items"] = items
    if prefixes:
        told["prefixes"] = prefixes
    return told


def _folder(name: str, prefix: str, delimiter: str) -> str:
    """Return what stands for a name and others like it, nothing where it stands for itself."""
    if not delimiter:
        return ""
    head, found, _ = name.removeprefix(prefix).partition(delimiter)
    return prefix + head + found if found else ""


def _page_size(options: Mapping[str, str]) -> int:
    text = options.get("maxResults", "0")
    if not text.isascii() or not text.isdecimal():
        raise StorageRefused(400, "invalid", f"Invalid value for maxResults: {text!r}")
    return min(int(text) or MOST_ON_A_PAGE, MOST_ON_A_PAGE)


def _page_token(options: Mapping[str, str]) -> str:
    """Return what the page before ended with."""
    try:
        return base64.urlsafe_b64decode(options.get("pageToken", "")).decode()
    except ValueError:
        raise StorageRefused(400, "invalid", "Invalid argument: the page token.") from None


def _span(found: re.Match[str] | None, size: int) -> tuple[int, int]:
    """Return the first and the last byte that a request asks for."""
    if found is None or found[0] == "bytes=-":
        return 0, size - 1
    if not found["first"]:
        return max(size - int(found["last"]), 0), size - 1 if int(found["last"]) else -1
    return int(found["first"]), min(int(found["last"] or size), size - 1)


def _merged(stored: Stored, said: dict[str, Any]) -> dict[str, Any]:
    """Return what is to be said of an object, with its own metadata merged key by key."""
    new = said.get("metadata")
    if isinstance(new, dict):
        old = stored.attributes.said.get("metadata")
        both = {**(old if isinstance(old, dict) else {}), **new}
        said["metadata"] = {key: value for key, value in both.items() if value is not None}
    return said
