"""What jobs leave in Cloud Storage."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

from distlaunch.background import Meanwhile
from distlaunch.errors import DistlaunchError, GoogleError, Unavailable
from distlaunch.google import failures
from distlaunch.google.api_errors import Refusal
from distlaunch.google.client import LARGEST, LONGEST

if TYPE_CHECKING:
    from google.api_core.exceptions import GoogleAPICallError

    from distlaunch.google.client import Session

_URI = re.compile(r"gs://(?P<bucket>[^/]+)/(?P<path>.+)", re.DOTALL)


def read(session: Session, uri: str) -> bytes | None:
    """Return what a file (``gs://BUCKET/PATH``) holds, None where there is none.

    Raises
    ------
    GoogleError
        If it may not be read, is larger than `LARGEST`, or Google cannot be reached.
    """
    from google.api_core.exceptions import GoogleAPICallError, NotFound, RetryError
    from google.auth.exceptions import GoogleAuthError
    from google.cloud.storage import Client  # type: ignore[import-untyped]
    from google.cloud.storage.retry import DEFAULT_RETRY  # type: ignore[import-untyped]
    from requests.exceptions import RequestException

    found = _URI.fullmatch(uri)
    if found is None:
        raise DistlaunchError(f"{uri}: not a file in Cloud Storage; expected gs://BUCKET/PATH")
    client = Client(
        project=session.project,
        credentials=session.credentials,
        _http=session.http,
        client_options={"api_endpoint": session.endpoint} if session.endpoint else None,
    )
    blob = client.bucket(found["bucket"]).blob(found["path"])
    content = _Limited()
    retry = DEFAULT_RETRY.with_timeout(LONGEST)
    try:
        Meanwhile(lambda: blob.download_to_file(content, retry=retry)).result(LONGEST)
    except TimeoutError as problem:
        raise Unavailable(f"{uri}: cannot be read within {LONGEST:g} s") from problem
    except NotFound:
        return None
    except _TooLargeError as problem:
        raise failures.invalid(uri, f"larger than {LARGEST >> 20} MiB") from problem
    except GoogleAPICallError as problem:
        raise _refused(uri, problem, session) from problem
    except (RetryError, RequestException, GoogleAuthError) as problem:
        raise Unavailable(f"{uri}: cannot be read ({_first_line(problem)})") from problem
    return content.getvalue()


class _TooLargeError(Exception):
    """A file has more than `LARGEST` bytes."""


class _Limited(io.BytesIO):
    """A buffer for `LARGEST` bytes."""

    def write(self, data: Any, /) -> int:
        if self.tell() + len(data) > LARGEST:
            raise _TooLargeError
        return super().write(data)


def _refused(uri: str, problem: GoogleAPICallError, session: Session) -> GoogleError:
    response = getattr(problem, "response", None)
    refusal = Refusal(
        int(problem.code or 0),
        getattr(response, "headers", {}),
        getattr(response, "content", b""),
        service="storage",
        project=session.project,
    ).problem()
    text = f"{uri}: {refusal}"
    if isinstance(refusal, Unavailable):
        return Unavailable(text, status=refusal.status, reason=refusal.reason)
    return GoogleError(text, status=refusal.status, reason=refusal.reason)


def _first_line(problem: Exception) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0]
