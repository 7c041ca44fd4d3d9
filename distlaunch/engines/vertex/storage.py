"""Files of jobs in Cloud Storage."""

from __future__ import annotations

import base64
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from distlaunch.engines.vertex.api_errors import root_cause
from distlaunch.errors import GoogleError, RetryableError
from distlaunch.files import open_output
from distlaunch.retry import CALL_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from distlaunch.engines.vertex.client import Session

_CHUNK = 1 << 20


def read(session: Session, uri: str) -> bytes | None:
    """Return the content of a file (``gs://BUCKET/PATH``), None if it does not exist.

    Raises
    ------
    GoogleError
        If it cannot be read.
    """
    from google.api_core.exceptions import NotFound
    from google.cloud.storage import Blob  # type: ignore[import-untyped]

    with _errors_of(session, uri):
        blob = Blob.from_uri(uri, _client(session))
        try:
            content: bytes = blob.download_as_bytes(retry=_retry())
        except NotFound:
            return None
    return content


def upload(session: Session, path: Path, uri: str) -> None:
    """Upload a file as ``gs://BUCKET/PATH``; GoogleError is raised if it cannot be written."""
    from google.cloud.storage import Blob

    with _errors_of(session, uri, "written"):
        Blob.from_uri(uri, _client(session)).upload_from_filename(path, retry=_retry())


def delete(session: Session, uri: str) -> None:
    """Delete a file ``gs://BUCKET/PATH``; GoogleError is raised if it cannot be deleted."""
    from google.cloud.storage import Blob

    with _errors_of(session, uri, "deleted"):
        Blob.from_uri(uri, _client(session)).delete(retry=_retry())


def list_files(session: Session, folder: str) -> list[Any]:
    """Return the files (``google.cloud.storage.Blob``) in a folder ``gs://BUCKET/PATH``.

    Raises
    ------
    GoogleError
        If they cannot be listed.
    """
    bucket, _, prefix = folder.removeprefix("gs://").partition("/")
    prefix = f"{prefix.rstrip('/')}/" if prefix else ""
    with _errors_of(session, folder):
        blobs = list(_client(session).list_blobs(bucket, prefix=prefix, retry=_retry()))
    files = [blob for blob in blobs if not blob.name.endswith("/")]
    for blob in files:
        try:
            is_valid = blob.size >= 0 and blob.generation >= 0
        except (TypeError, ValueError):  # missing, or not a number
            is_valid = False
        if not is_valid:
            raise GoogleError(f"gs://{bucket}/{blob.name}: the server's answer has no size of it")
    return files


def download(session: Session, blob: Any, path: Path) -> int:
    """Download a file, from where an earlier download of the same content was interrupted.

    Returns
    -------
    int
        The bytes that were downloaded; 0 if the file was there already.

    Raises
    ------
    GoogleError
        If it cannot be read, or its checksum (CRC-32C) is wrong.
    OSError
        If it cannot be written.
    """
    if path.is_file() and path.stat().st_size == blob.size and _checksum(path) == blob.crc32c:
        return 0
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _part_of(blob, path)
    start = part.stat().st_size if part.exists() else 0
    with open_output(part, "ab") as file, _errors_of(session, blob.name):
        if start < blob.size:
            # Compared below instead, as a part may be of an earlier command.
            blob.download_to_file(file, start=start or None, checksum=None, retry=_retry())
    if _checksum(part) != blob.crc32c:
        part.unlink()
        raise GoogleError(f"gs://{blob.bucket.name}/{blob.name}: the checksum is wrong; try again")
    part.replace(path)
    return int(blob.size - start)


def downloaded_bytes(blob: Any, path: Path) -> int:
    """Return the bytes of a file that a download which is in progress has written."""
    with suppress(OSError):
        return _part_of(blob, path).stat().st_size
    return 0


def _part_of(blob: Any, path: Path) -> Path:
    return path.with_name(f"{path.name}.{blob.generation}.part")


def _client(session: Session) -> Any:
    from google.cloud.storage import Client

    # Otherwise each client looks its bucket up on a thread of its own, for traces.
    os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    return Client(
        project=session.project,
        credentials=session.credentials,
        _http=session.http,
        client_options={"api_endpoint": session.endpoint} if session.endpoint else None,
    )


def _retry() -> Any:
    from google.cloud.storage.retry import DEFAULT_RETRY  # type: ignore[import-untyped]

    return DEFAULT_RETRY.with_timeout(CALL_TIMEOUT)


def _checksum(path: Path) -> str:
    """Return the CRC-32C of a file as Cloud Storage gives it."""
    import google_crc32c

    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            checksum = google_crc32c.extend(checksum, chunk)
    return base64.b64encode(checksum.to_bytes(4, "big")).decode()


@contextmanager
def _errors_of(session: Session, uri: str, action: str = "read") -> Iterator[None]:
    """Raise GoogleError for what Google's client raises."""
    from google.api_core.exceptions import GoogleAPICallError, RetryError
    from google.auth.exceptions import GoogleAuthError
    from requests.exceptions import RequestException

    from distlaunch.engines.vertex.tokens import token_error

    try:
        yield
    except GoogleAPICallError as error:
        raise session.refusal(error.response, "storage") from error
    except GoogleAuthError as error:
        raise token_error(error, session.credentials) from error
    except (RetryError, RequestException) as error:
        raise RetryableError(f"{uri}: cannot be {action} ({root_cause(error)})") from error
