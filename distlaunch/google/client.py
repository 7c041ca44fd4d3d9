"""One small client for all of Google's JSON APIs."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from distlaunch import __version__
from distlaunch.background import BackgroundTask
from distlaunch.errors import GoogleError, RetryableError
from distlaunch.google import api_errors, auth
from distlaunch.google.endpoints import is_loopback, normalise_endpoint, service_url
from distlaunch.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.auth.credentials import Credentials
    from google.auth.transport.requests import AuthorizedSession
    from requests import Response

    from distlaunch.ui.events import ShowMessage

Timeout = tuple[float, float]
"""Seconds to connect, and between two bytes of the response."""
Params = Mapping[str, str | int | Sequence[str]]

RETRY_DEADLINE = 60.0  # seconds for which transient failures are retried
MAX_RESPONSE_BYTES = 64 << 20  # decompressed
CALL_TIMEOUT = 120.0  # seconds for a request and its whole response

_TIMEOUT: Timeout = (10.0, 60.0)
_CONNECTIONS = 32  # that threads may use at once
_REPORT_AFTER = 5.0  # seconds of retrying before it is reported
_CHUNK = 1 << 16  # bytes
_QUOTED = 40  # bytes of a response that is not a JSON object


class _Request(NamedTuple):
    method: str
    service: str
    url: str
    params: Params | None
    data: bytes | None
    timeout: Timeout

    @property
    def host(self) -> str:
        return api_errors.host_of(self.url)


@dataclass(frozen=True)
class Session:
    """Calls to Google, or to an endpoint that replaces it."""

    http: AuthorizedSession  # sends requests with the credentials
    _: KW_ONLY
    endpoint: str | None  # the URL that replaces all of Google's
    project: str | None  # of the calls, for messages
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    show_message: ShowMessage | None  # prints that a call is being retried, and warnings

    @property
    def credentials(self) -> Credentials:
        """The credentials that sign the calls."""
        credentials: Credentials = self.http.credentials
        return credentials

    def sign_in(self, timeout: float = _TIMEOUT[1]) -> None:
        """Get a token before the calls, so that several threads do not request one each.

        RetryableError is raised if there is no response for `timeout` seconds, and GoogleError if
        the credentials are not accepted.
        """
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import Request

        if self.credentials.valid:
            return
        try:
            self.credentials.refresh(partial(Request(), timeout=timeout))  # type: ignore[no-untyped-call]
        except GoogleAuthError as error:
            raise api_errors.token_error(error) from error

    def call(
        self,
        method: str,
        service: str,
        path: str,
        *,
        params: Params | None = None,
        body: Mapping[str, Any] | None = None,
        region: str | None = None,
        version: str | None = None,
        retry_deadline: float = RETRY_DEADLINE,
        timeout: Timeout = _TIMEOUT,
    ) -> dict[str, Any]:
        """Return the response of a call.

        Parameters
        ----------
        service, path, version
            See `service_url`.
        params
            The query; a list is a parameter that is repeated.
        region
            For regional services.
        retry_deadline
            Seconds for which transient failures are retried; 0 for a single attempt.
        timeout
            Seconds to connect, and between two bytes of the response.

        Raises
        ------
        RetryableError
            If there is no response, or one that requests a retry; the call may have been processed.
        GoogleError
            If the call is refused.
        """
        url = service_url(service, path, region=region, endpoint=self.endpoint, version=version)
        data = None if body is None else json.dumps(body).encode()
        request = _Request(method, service, url, params, data, timeout)
        backoff = Backoff(deadline=retry_deadline, clock=self.clock)
        is_reported = False
        while True:
            try:
                return self._attempt(request)
            except RetryableError as error:
                delay = self.retry_delay(backoff, error)
                if delay is None:
                    raise
                if not is_reported and backoff.elapsed + delay > _REPORT_AFTER:
                    self.show(f"{error}; retrying")
                    is_reported = True
            self.sleep(delay)

    def show(self, *message: Any) -> None:
        """Print a message, given as to `ShowMessage`."""
        if self.show_message:
            self.show_message(*message)

    def invalid_response(
        self, service: str, problem: str, *, region: str | None = None
    ) -> GoogleError:
        """Return the error for a response that is JSON, but not what the API documents."""
        url = service_url(service, "", region=region, endpoint=self.endpoint)
        return api_errors.invalid_response(api_errors.host_of(url), problem)

    def retry_delay(self, backoff: Backoff, error: RetryableError) -> float | None:
        """Return the seconds before a retry of a failed call, None if it should not be retried."""
        return None if self.is_emulator_down(error) else backoff.next_delay(error.wait)

    def is_emulator_down(self, error: RetryableError) -> bool:
        """Whether a port of this machine refused the connection, so that retries are pointless."""
        is_refused = error.reason == "UNREACHABLE" and not error.may_have_been_processed
        return is_refused and is_loopback(self.endpoint)

    def _attempt(self, request: _Request) -> dict[str, Any]:
        response = self._send(request)
        if not 200 <= response.status_code < 300:
            raise api_errors.from_response(
                response.status_code,
                response.headers,
                response.content,
                service=request.service,
                host=request.host,
                project=self.project,
                member=auth.iam_member(self.credentials),
            )
        if len(response.content) > MAX_RESPONSE_BYTES:
            problem = f"larger than {MAX_RESPONSE_BYTES >> 20} MiB"
            raise api_errors.invalid_response(request.host, problem)
        try:
            content = json.loads(response.content or b"{}")
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            quoted = response.content[:_QUOTED].decode("utf-8", "replace")
            problem = f"expected a JSON object, got {quoted!r}"
            raise api_errors.unreadable_response(request.host, problem)
        return content

    def _send(self, request: _Request) -> Response:
        """Send a request once.

        The timeout of Requests applies to each read, and a server that sends a byte a second never
        exceeds it. So the request runs on a thread, which is abandoned after `CALL_TIMEOUT`.
        """
        from google.auth.exceptions import GoogleAuthError
        from requests.exceptions import ContentDecodingError, RequestException

        headers = {"Content-Type": "application/json"} if request.data is not None else {}
        exchange: Callable[[], Response] = partial(
            self.http.request,
            request.method,
            request.url,
            params=request.params,
            data=request.data,
            headers=headers,
            timeout=request.timeout,
            allow_redirects=False,
            stream=True,
            hooks={"response": _read_body},
        )
        try:
            return BackgroundTask(exchange).result(CALL_TIMEOUT)
        except TimeoutError as error:
            raise RetryableError(
                f"no complete response from {request.host} within {CALL_TIMEOUT:g} s",
                reason="UNREACHABLE",
            ) from error
        except GoogleAuthError as error:
            raise api_errors.token_error(error) from error
        except ContentDecodingError as error:
            reason = api_errors.root_cause(error)
            raise api_errors.unreadable_response(request.host, reason) from error
        except RequestException as error:
            is_local = is_loopback(self.endpoint)
            raise api_errors.connection_error(request.host, error, is_local=is_local) from error


def connect(
    endpoint: str | None = None,
    *,
    project: str | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    show_message: ShowMessage | None = None,
) -> Session:
    """Return a session; no API is called yet.

    Parameters
    ----------
    endpoint
        The URL that replaces all of Google's: ``http://`` on loopback, where no credentials are
        used, or ``https://``, which gets the real ones.
    project
        The quota project of the calls, if the credentials name no other.
    clock, sleep
        Seconds.
    show_message
        Prints that a call has been retried for some time, and warnings.

    Raises
    ------
    GoogleError
        If there are no credentials, with the command that creates them.
    UsageError
        If the endpoint is invalid.
    """
    endpoint = normalise_endpoint(endpoint) if endpoint else None
    http = _anonymous_session() if is_loopback(endpoint) else _authorized_session(project)
    _prepare(http)
    http.headers["User-Agent"] = f"distlaunch/{__version__}"
    return Session(
        http,
        endpoint=endpoint,
        project=project,
        clock=clock,
        sleep=sleep,
        show_message=show_message,
    )


def _read_body(response: Response, **_: Any) -> None:
    """Read the body of a response, up to the maximum size."""
    body = bytearray()
    with response:
        for chunk in response.iter_content(_CHUNK):
            body += chunk
            if len(body) > MAX_RESPONSE_BYTES:
                break
    response._content = bytes(body)  # noqa: SLF001 - Requests has no limit


def _prepare(http: AuthorizedSession) -> None:
    """Allow a connection for each of several threads, and ignore redirects."""
    from requests.adapters import HTTPAdapter

    adapter = HTTPAdapter(pool_maxsize=_CONNECTIONS)
    for scheme in ("https://", "http://"):
        http.mount(scheme, adapter)
    # Requests evaluates a redirect's target even if it does not follow it.
    http.get_redirect_target = lambda resp: None  # type: ignore[method-assign]  # noqa: ARG005


def _anonymous_session() -> AuthorizedSession:
    from google.auth.credentials import AnonymousCredentials
    from google.auth.transport.requests import AuthorizedSession

    class RefreshableAnonymousCredentials(AnonymousCredentials):
        """Anonymous credentials that do not raise when a 401 makes the session refresh them."""

        def refresh(self, request: object) -> None: ...

    http = AuthorizedSession(RefreshableAnonymousCredentials(), max_refresh_attempts=1)  # type: ignore[no-untyped-call]
    http.trust_env = False  # no proxy leads to this machine
    return http


def _authorized_session(project: str | None) -> AuthorizedSession:
    credentials = auth.load_credentials(project)
    from google.auth.transport.requests import AuthorizedSession

    return AuthorizedSession(credentials, max_refresh_attempts=1)  # type: ignore[no-untyped-call]
