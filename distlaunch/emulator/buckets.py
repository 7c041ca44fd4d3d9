"""Buckets as folders: `gs://BUCKET/PATH` is the file `STORAGE/BUCKET/PATH`.

The JSON API (https://cloud.google.com/storage/docs/json_api/v1) is there for upload, download, list
and delete. An object is read from its file, so what a job writes is an object too. What an upload
sends with it is kept as long as the service runs.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import mimetypes
import os
import re
import secrets
import shutil
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from werkzeug.utils import send_file
from werkzeug.wrappers import Response

from distlaunch import timestamps
from distlaunch.emulator.http import ApiError, Route, read_json
from distlaunch.errors import os_reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from werkzeug.wrappers import Request

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", re.ASCII)
_RANGE = re.compile(r"bytes (?:(?P<first>\d{1,18})-\d{1,18}|\*)/(?P<total>\d{1,18}|\*)", re.ASCII)
# Of an upload: https://cloud.google.com/storage/docs/json_api/v1/objects#resource
_METADATA = {"cacheControl", "contentEncoding", "contentType", "contentLanguage", "metadata"}


def local_path(storage: Path, uri: str) -> Path:
    """Return the file or folder of a `gs://` URI below the folder of the buckets."""
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    parts = name.removesuffix("/").split("/") if name else []
    if not _BUCKET.fullmatch(bucket):
        raise ValueError(f"invalid bucket name: {bucket!r}")
    if "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"not a path in a bucket: {name!r}")
    root = (storage / bucket).resolve()
    path = root.joinpath(*parts)
    if not path.resolve().is_relative_to(root):
        raise ValueError(f"a symlink leads out of the bucket: {name!r}")
    return path


class BucketService:
    """Cloud Storage on a folder with a folder for each bucket.

    A bucket exists as soon as it is named; `region` is the location of all.
    """

    def __init__(self, storage: Path, region: str) -> None:
        self._storage = storage.resolve()
        self._region = region
        self._scratch = tempfile.TemporaryDirectory(prefix=".uploads-", dir=storage)
        self._uploads: dict[str, tuple[str, dict[str, Any]]] = {}  # bucket and metadata, by the id
        self._metadata: dict[tuple[Path, str], dict[str, Any]] = {}  # by file and generation

    def close(self) -> None:
        """Remove uploads that are not complete."""
        self._scratch.cleanup()

    def routes(self) -> Iterator[Route]:
        """Yield the API's methods."""
        bucket, objects = "/storage/v1/b/<bucket>", "/storage/v1/b/<bucket>/o"
        for method, path, handler in (
            ("GET", "/storage/v1/b", self._list_buckets),
            ("POST", "/storage/v1/b", self._create_bucket),
            ("GET", bucket, self._get_bucket),
            ("GET", objects, self._list_objects),
            ("GET", f"{objects}/<path:name>", self._resource),
            ("DELETE", f"{objects}/<path:name>", self._delete_object),
            ("GET", f"/download{objects}/<path:name>", self._download),
        ):
            yield Route(method, path, handler)
        for prefix in ("/upload", "/resumable/upload"):
            yield Route("POST", prefix + objects, self._upload, is_upload=True)
            yield Route("PUT", prefix + objects, self._resume_upload, is_upload=True)

    def _list_buckets(self, request: Request) -> dict[str, Any]:
        names = sorted(
            path.name for path in self._storage.iterdir() if _BUCKET.fullmatch(path.name)
        )
        return {"items": [self._get_bucket(request, name) for name in names]}

    def _create_bucket(self, request: Request) -> dict[str, Any]:
        name = str(read_json(request).get("name", ""))
        try:
            self._path(name).mkdir()
        except FileExistsError:
            raise ApiError(409, f"The bucket {name} exists already.") from None
        return self._get_bucket(request, name)

    def _get_bucket(self, _: Request, bucket: str) -> dict[str, Any]:
        self._path(bucket)
        location = {"location": self._region.upper(), "locationType": "region"}
        return {"kind": "storage#bucket", "id": bucket, "name": bucket, **location}

    def _list_objects(self, request: Request, bucket: str) -> dict[str, Any]:
        args, items = request.args, list[dict[str, Any]]()
        prefix, delimiter = args.get("prefix", ""), args.get("delimiter", "")
        start, end = args.get("startOffset", ""), args.get("endOffset", "\U0010ffff")
        entries: dict[str, bool] = {}  # whether it is a prefix
        for name in sorted(self._names(bucket)):
            if name.startswith(prefix) and start <= name < end:
                folder, separator, _ = name.removeprefix(prefix).partition(delimiter or "\0")
                entries[prefix + folder + separator if separator else name] = bool(separator)
        left = [name for name in entries if name > args.get("pageToken", "")]
        page = left[: args.get("maxResults", 0, type=int) or 1000]
        for name in page:
            with suppress(ApiError, FileNotFoundError):  # a job has just removed it
                items += [] if entries[name] else [self._resource(request, bucket, name)]
        prefixes = [name for name in page if entries[name]]
        token = {"nextPageToken": page[-1]} if len(page) < len(left) else {}
        return {"kind": "storage#objects", "items": items, "prefixes": prefixes, **token}

    def _names(self, bucket: str) -> Iterator[str]:
        root = self._path(bucket)
        for folder, _, files in os.walk(root):
            for file in files:
                path = Path(folder, file)
                if not path.is_symlink():
                    yield path.relative_to(root).as_posix()

    def _delete_object(self, request: Request, bucket: str, name: str) -> Response:
        self._file(request, bucket, name).unlink(missing_ok=True)
        return Response(status=204)

    def _download(self, request: Request, bucket: str, name: str) -> Response:
        path, sent = self._file(request, bucket, name), self._resource(request, bucket, name)
        encoding = sent.get("contentEncoding")
        if encoding == "gzip" and "gzip" not in str(request.accept_encodings):
            response = Response(gzip.decompress(path.read_bytes()))
        else:
            response = send_file(path, request.environ, conditional=True, etag=False)
            response.headers |= {"Content-Encoding": encoding} if encoding else {}
        response.headers["Content-Type"] = sent["contentType"]
        response.headers["X-Goog-Hash"] = f"crc32c={sent['crc32c']},md5={sent['md5Hash']}"
        response.headers["X-Goog-Generation"] = sent["generation"]
        return response

    def _upload(self, request: Request, bucket: str) -> Response | dict[str, Any]:
        kind = request.args.get("uploadType")
        header = "X-Upload-Content-Type" if kind == "resumable" else "Content-Type"
        metadata: dict[str, Any] = {"contentType": request.headers.get(header)}
        metadata["name"] = request.args.get("name", "")
        path = Path(self._scratch.name, secrets.token_hex(12))
        if kind == "resumable":
            path.touch()
            self._uploads[path.name] = (bucket, metadata | read_json(request))
            url = f"{request.base_url}?uploadType=resumable&upload_id={path.name}"
            return Response(headers={"Location": url})
        if kind == "multipart":
            sent, content = _split_multipart(request)
            path.write_bytes(content)
            metadata |= sent
        else:
            with path.open("wb") as file:
                shutil.copyfileobj(request.stream, file)
        return self._put(request, bucket, metadata, path)

    def _resume_upload(self, request: Request, bucket: str) -> Response | dict[str, Any]:
        upload_id = request.args.get("upload_id", "")
        upload_bucket, metadata = self._uploads.get(upload_id, ("", {}))
        if upload_bucket != bucket:
            raise ApiError(404, "No such upload; start it from the beginning.")
        content_range = request.headers.get("Content-Range", "bytes 0-0/*")
        match = _RANGE.fullmatch(content_range)
        if match is None:
            raise ApiError(400, f"Invalid Content-Range: {content_range!r}")
        path = Path(self._scratch.name, upload_id)
        with path.open("r+b") as file:
            if match["first"]:
                file.seek(int(match["first"]))
                shutil.copyfileobj(request.stream, file)
                file.truncate()
            size = file.seek(0, os.SEEK_END)
        if "Content-Range" in request.headers and match["total"] != str(size):
            return Response(status=308, headers={"Range": f"bytes=0-{size - 1}"} if size else {})
        del self._uploads[upload_id]
        return self._put(request, bucket, metadata, path)

    def _put(
        self, request: Request, bucket: str, metadata: dict[str, Any], content: Path
    ) -> dict[str, Any]:
        """Move uploaded content to its place in the bucket."""
        name = str(metadata["name"])
        if not name or (name.endswith("/") and content.stat().st_size):
            raise ApiError(400, f"Invalid object name: {name!r}")
        path = self._path(bucket, name)
        try:
            if name.endswith("/"):  # a folder, as TensorFlow makes it
                path.mkdir(parents=True, exist_ok=True)
                return {"kind": "storage#object", "name": name, "bucket": bucket, "size": "0"}
            path.parent.mkdir(parents=True, exist_ok=True)
            content.replace(path)
        except OSError as problem:
            text = f"{name}: objects are files here ({os_reason(problem)})"
            raise ApiError(400, text) from None
        kept = {key: metadata[key] for key in _METADATA if metadata.get(key)}
        self._metadata[path, _generation(path)] = kept
        return self._resource(request, bucket, name)

    def _path(self, bucket: str, name: str = "") -> Path:
        try:
            return local_path(self._storage, f"{bucket}/{name}" if name else bucket)
        except ValueError as problem:
            raise ApiError(400, str(problem)) from None

    def _file(self, request: Request, bucket: str, name: str) -> Path:
        path = self._path(bucket, name)
        exists = path.is_file() and not name.endswith("/")
        if not exists or request.args.get("generation", _generation(path)) != _generation(path):
            raise ApiError(404, f"No such object: {bucket}/{name}")
        return path

    def _resource(self, request: Request, bucket: str, name: str) -> dict[str, Any]:
        path = self._file(request, bucket, name)
        generation = _generation(path)
        crc32c, md5 = _hashes(path, generation)
        link = f"download/storage/v1/b/{bucket}/o/{quote(name)}"
        changed = timestamps.format(path.stat().st_mtime)
        return {
            "kind": "storage#object",
            "name": name,
            "bucket": bucket,
            "generation": generation,
            "metageneration": "1",
            "mediaLink": f"{request.url_root}{link}?generation={generation}&alt=media",
            "contentType": mimetypes.guess_type(name)[0] or "application/octet-stream",
            "size": str(path.stat().st_size),
            "md5Hash": md5,
            "crc32c": crc32c,
            "timeCreated": changed,
            "updated": changed,
        } | self._metadata.get((path, generation), {})


def _generation(path: Path) -> str:
    return str(path.stat().st_mtime_ns // 1_000)


@lru_cache(maxsize=10_000)
def _hashes(path: Path, _: str) -> tuple[str, str]:
    """Return the CRC-32C and the MD5 of a generation of a file, in base64."""
    import google_crc32c

    crc32c: Any = google_crc32c.Checksum()  # type: ignore[no-untyped-call]
    md5 = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            crc32c.update(chunk)
            md5.update(chunk)
    return base64.b64encode(crc32c.digest()).decode(), base64.b64encode(md5.digest()).decode()


def _split_multipart(request: Request) -> tuple[dict[str, Any], bytes]:
    """Return the metadata and the content of multipart/related.

    gcloud ends lines with LF and quotes the boundary in the header, unlike other clients; so both
    are taken from the first line of the body.
    """
    body = request.get_data()
    first_line = body.partition(b"\n")[0]
    newline = b"\r\n" if first_line.endswith(b"\r") else b"\n"
    parts = (newline + body).split(newline + first_line.rstrip(b"\r"))
    if len(parts) != 4 or not parts[3].startswith(b"--"):
        raise ApiError(400, "Multipart content must have two parts.")
    (_, _, head), (headers, _, content) = (part.partition(2 * newline) for part in parts[1:3])
    try:
        metadata = json.loads(head)
    except ValueError as problem:
        raise ApiError(400, f"The metadata is not JSON: {problem}") from None
    match = re.search(rb"(?i)^content-type:\s*([^\r\n]+)", headers, re.MULTILINE)
    sent = {"contentType": match and match[1].decode()}
    return sent | (metadata if isinstance(metadata, dict) else {}), content
