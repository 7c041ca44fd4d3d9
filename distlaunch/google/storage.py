"""Files of jobs in Cloud Storage."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from distlaunch.background import BackgroundTask
from distlaunch.errors import DistlaunchError, GoogleError, RetryableError
from distlaunch.google import api_errors
from distlaunch.google.client import CALL_TIMEOUT

if TYPE_CHECKING:
    from google.api_core.exceptions import GoogleAPICallError

    from distlaunch.google.client import Session

_URI = re.compile(r"gs://(?P<bucket>[^/]+)/(?P<path>.+)", re.DOTALL)


def read(session: Session, uri: str) -> bytes | None:
    """Return the content of a file (``gs://BUCKET/PATH``), None if it does not exist.

    GoogleError is raised if it cannot be read.
    """
    from google.api_core.exceptions import GoogleAPICallError, NotFound, RetryError
    from google.auth.exceptions import GoogleAuthError
    from google.cloud.storage import Client  # type: ignore[import-untyped]
    from google.cloud.storage.retry import DEFAULT_RETRY  # type: ignore[import-untyped]
    from requests.exceptions import RequestException

    match = _URI.fullmatch(uri)
    if match is None:
        raise DistlaunchError(f"{uri}: not a file in Cloud Storage; expected gs://BUCKET/PATH")
    client = Client(
        project=session.project,
        credentials=session.credentials,
        _http=session.http,
        client_options={"api_endpoint": session.endpoint} if session.endpoint else None,
    )
    retry = DEFAULT_RETRY.with_timeout(CALL_TIMEOUT)

    blob = client.bucket(match["bucket"]).blob(match["path"])
    download: BackgroundTask[bytes] = BackgroundTask(lambda: blob.download_as_bytes(retry=retry))
    try:
        return download.result(CALL_TIMEOUT)
    except NotFound:
        return None
    except TimeoutError as error:
        raise RetryableError(f"{uri}: cannot be read within {CALL_TIMEOUT:g} s") from error
    except GoogleAPICallError as error:
        raise _refused(uri, error, session) from error
    except (RetryError, RequestException, GoogleAuthError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise RetryableError(f"{uri}: cannot be read ({reason})") from error


def _refused(uri: str, error: GoogleAPICallError, session: Session) -> GoogleError:
    response = getattr(error, "response", None)
    refusal = api_errors.from_response(
        int(error.code or 0),
        getattr(response, "headers", {}),
        getattr(response, "content", b""),
        service="storage",
        project=session.project,
    )
    return refusal.with_text(f"{uri}: {refusal}")
