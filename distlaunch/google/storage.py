"""Files of jobs in Cloud Storage."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from distlaunch.errors import RetryableError
from distlaunch.google import auth
from distlaunch.google.api_errors import ErrorResponse, root_cause
from distlaunch.retry import CALL_TIMEOUT

if TYPE_CHECKING:
    from distlaunch.google.client import Session

HOST = "storage.googleapis.com"


def read(session: Session, uri: str) -> bytes | None:
    """Return the content of a file (``gs://BUCKET/PATH``), None if it does not exist.

    Raises
    ------
    GoogleError
        If it cannot be read.
    """
    from google.api_core.exceptions import GoogleAPICallError, NotFound, RetryError
    from google.auth.exceptions import GoogleAuthError
    from google.cloud.storage import Blob, Client  # type: ignore[import-untyped]
    from google.cloud.storage.retry import DEFAULT_RETRY  # type: ignore[import-untyped]
    from requests.exceptions import RequestException

    # Otherwise each client looks its bucket up on a thread of its own, for traces.
    os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    client = Client(
        project=session.project,
        credentials=session.credentials,
        _http=session.http,
        client_options={"api_endpoint": session.endpoint} if session.endpoint else None,
    )
    retry = DEFAULT_RETRY.with_timeout(CALL_TIMEOUT)
    try:
        content: bytes = Blob.from_uri(uri, client).download_as_bytes(retry=retry)
    except NotFound:
        return None
    except GoogleAPICallError as error:
        raise ErrorResponse(
            int(error.code or 0),
            error.response.headers,
            error.response.content,
            service="storage",
            host=HOST,
            project=session.project,
            member=auth.iam_member(session.credentials),
        ).error() from error
    except (RetryError, RequestException, GoogleAuthError) as error:
        raise RetryableError(f"{uri}: cannot be read ({root_cause(error)})") from error
    return content
