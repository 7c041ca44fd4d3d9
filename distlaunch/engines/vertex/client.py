"""One small client for all of Google's JSON APIs."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from distlaunch import __version__
from distlaunch.engines.vertex import api_errors, auth
from distlaunch.errors import SILENT, GoogleError, RetryableError, UsageError
from distlaunch.retry import RETRY_DEADLINE, Backoff

if TYPE_CHECKING:
    from collections.abc import Callable
    from urllib.parse import SplitResult

    from google.auth.credentials import Credentials
    from google.auth.transport.requests import AuthorizedSession
    from requests import Response

    from distlaunch.events import ShowMessage

Timeout = tuple[float, float]
"""Seconds to connect, and between two bytes of the response."""
Params = Mapping[str, str | int | Sequence[str]]

_TIMEOUT: Timeout = (10.0, 60.0)
_CONNECTIONS = 32  # that threads may use at once
_REPORT_AFTER = 5.0  # seconds of retrying before it is reported
_QUOTED = 40  # bytes of a response that is not a JSON object


# The path before that of a call, which ends with the version.
_PREFIXES = {
    "aiplatform": "/v1/",
    "artifactregistry": "/v1/",
    "cloudbilling": "/v1/",
    "cloudbuild": "/v1/",
    "cloudresourcemanager": "/v3/",
    "compute": "/compute/v1/",
    "iam": "/v1/",
    "logging": "/v2/",
    "serviceusage": "/v1/",
    "storage": "/storage/v1/",
}
# Becomes part of a host that gets a token.
_REGION = re.compile(r"[a-z]+(-[a-z]+)*[0-9]*", re.ASCII)
_LOOPBACK = re.compile(r"localhost|127\.[0-9]+\.[0-9]+\.[0-9]+|::1", re.ASCII)


@dataclass(frozen=True)
class Session:
    """Calls to Google, or to an endpoint that replaces it."""

    http: AuthorizedSession  # sends requests with the credentials
    _: KW_ONLY
    endpoint: str | None  # the URL that replaces all of Google's
    project: str | None  # of the calls, for messages
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    show: ShowMessage = lambda *_: None  # prints that a call is being retried, and warnings

    @property
    def credentials(self) -> Credentials:
        """The credentials that sign the calls."""
        credentials: Credentials = self.http.credentials
        return credentials

    def sign_in(self) -> None:
        """Get a token before the calls, so that several threads do not request one each.

        RetryableError is raised if there is no response for some seconds, and GoogleError if the
        credentials are not accepted.
        """
        from distlaunch.engines.vertex import tokens

        if not self.credentials.valid:
            tokens.refresh(self.credentials)

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

        `service`, `path`, `region` and `version` are those of `service_url`; a list in `params` is
        a parameter that is repeated. Transient failures are retried for `retry_deadline` seconds,
        0 for a single attempt. RetryableError is raised if there is no response, or one that
        requests a retry: the call may have been processed. GoogleError is raised if it is refused.
        """
        url = service_url(service, path, region=region, endpoint=self.endpoint, version=version)
        send: Callable[[], Response] = partial(
            self.http.request,
            method,
            url,
            params=params,
            data=None if body is None else json.dumps(body).encode(),
            headers={} if body is None else {"Content-Type": "application/json"},
            timeout=timeout,
            # A redirect would take the token to another host.
            allow_redirects=False,
        )
        retries = Retries(self, retry_deadline)
        while True:
            try:
                return self._attempt(send, service, api_errors.host_of(url))
            except RetryableError as error:  # noqa: PERF203 - each attempt may fail
                retries.wait(error)

    def is_emulator_down(self, error: RetryableError) -> bool:
        """Whether a port of this machine refused the connection, so that retries are pointless."""
        is_refused = error.reason == "UNREACHABLE" and not error.may_have_been_processed
        return is_refused and is_loopback(self.endpoint)

    def refusal(self, response: Response, service: str) -> GoogleError:
        """Return the error for a response of a service that is not successful."""
        member = auth.iam_member(self.credentials)
        return api_errors.ErrorResponse(response, service, self.project, member).error()

    def _attempt(self, send: Callable[[], Response], service: str, host: str) -> dict[str, Any]:
        response = self._send(send, host)
        if not 200 <= response.status_code < 300:
            raise self.refusal(response, service)
        try:
            content = json.loads(response.content or b"{}")
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            quoted = response.content[:_QUOTED].decode("utf-8", "replace")
            problem = f"expected a JSON object, got {quoted!r}"
            raise api_errors.unreadable_response(host, problem, response.content)
        return content

    def _send(self, send: Callable[[], Response], host: str) -> Response:
        """Send a request once, and read the response."""
        from google.auth.exceptions import GoogleAuthError
        from requests.exceptions import ContentDecodingError, RequestException

        from distlaunch.engines.vertex.tokens import token_error

        try:
            return send()
        except GoogleAuthError as error:
            raise token_error(error, self.credentials) from error
        except ContentDecodingError as error:
            raise api_errors.unreadable_response(host, api_errors.root_cause(error)) from error
        except RequestException as error:
            is_local = is_loopback(self.endpoint)
            raise api_errors.connection_error(host, error, is_local=is_local) from error


class Retries:
    """The waits between attempts of a call; after some seconds they are reported once."""

    def __init__(self, session: Session, deadline: float = RETRY_DEADLINE) -> None:
        self._session = session
        self._backoff = Backoff(deadline=deadline, clock=session.clock)
        self._is_reported = False

    def wait(self, error: RetryableError) -> None:
        """Wait before the next attempt; raise the error if there should be none."""
        session, backoff = self._session, self._backoff
        # A token server that has not responded yet will not: the network drops the requests.
        is_silent = error.reason == SILENT and session.credentials.token is None
        is_final = is_silent or session.is_emulator_down(error)
        delay = None if is_final else backoff.next_delay(error.wait)
        if delay is None:
            raise error
        if not self._is_reported and backoff.elapsed + delay > _REPORT_AFTER:
            session.show(f"{error}; retrying")
            self._is_reported = True
        session.sleep(delay)


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
        used, or ``https://``, which gets the real ones. UsageError is raised if it is invalid.
    project
        The quota project of the calls, if the credentials name no other. Without credentials,
        GoogleError has the command that creates them.
    show_message
        Prints that a call has been retried for some time, and warnings.
    """
    endpoint = normalise_endpoint(endpoint) if endpoint else None
    http = _http_session(project, is_anonymous=is_loopback(endpoint))
    return Session(
        http,
        endpoint=endpoint,
        project=project,
        clock=clock,
        sleep=sleep,
        show=show_message or (lambda *_: None),
    )


def service_url(
    service: str,
    path: str,
    *,
    region: str | None = None,
    endpoint: str | None = None,
    version: str | None = None,
) -> str:
    """Return the URL of a call: its path is the part after the version.

    An `endpoint` replaces Google's hosts, and a `version` such as ``v1beta1`` the default one.
    """
    prefix = _PREFIXES[service]
    if version is not None:
        prefix = f"{prefix[:-1].rpartition('/')[0]}/{version}/"
    if endpoint is not None:
        return f"{endpoint}{prefix}{path}"
    host = f"{service}.googleapis.com"
    if service == "aiplatform":
        if _REGION.fullmatch(region or "") is None:
            raise UsageError(f"{region!r} is not a region; expected one such as us-central1")
        host = f"{region}-{host}"
    return f"https://{host}{prefix}{path}"


def normalise_endpoint(endpoint: str) -> str:
    """Return an endpoint without a trailing slash."""
    parts = _split(endpoint)
    if parts is None or parts.query or parts.fragment or "@" in parts.netloc:
        raise UsageError(
            f"--endpoint {endpoint}: not a URL; expected one such as http://127.0.0.1:8085"
        )
    if parts.scheme == "https" or is_loopback(endpoint):
        return endpoint.rstrip("/")
    raise UsageError(
        f"--endpoint {endpoint}: expected https://, or http:// on this machine (127.0.0.1), "
        "because credentials are sent there"
    )


def is_loopback(endpoint: str | None) -> bool:
    """Whether an endpoint is plain HTTP on this machine, which gets no credentials."""
    parts = _split(endpoint or "")
    if parts is None:
        return False
    return parts.scheme == "http" and _LOOPBACK.fullmatch(parts.hostname or "") is not None


def display_endpoint(endpoint: str | None) -> str | None:
    """Return an endpoint without the path of an emulator's, which is its token."""
    return api_errors.host_of(endpoint) if endpoint and is_loopback(endpoint) else endpoint


def _split(endpoint: str) -> SplitResult | None:
    try:
        parts = urlsplit(endpoint)
        parts.port  # noqa: B018 - raises ValueError if it is not a number
    except ValueError:
        return None
    return parts if parts.hostname else None


def _read_error(response: Response, **_: Any) -> None:
    """Read the body of an error response; google-cloud-storage leaves its connection open."""
    if not response.ok:
        response.content  # noqa: B018 - reads it


def _http_session(project: str | None, *, is_anonymous: bool) -> AuthorizedSession:
    """Return a session that allows a connection for each of several threads."""
    from google.auth.transport.requests import AuthorizedSession
    from requests.adapters import HTTPAdapter

    from distlaunch.engines.vertex.tokens import TokenRequest

    credentials = _anonymous_credentials() if is_anonymous else auth.load_credentials(project)
    http = AuthorizedSession(  # type: ignore[no-untyped-call]
        credentials, max_refresh_attempts=1, auth_request=TokenRequest()
    )
    if is_anonymous:
        http.trust_env = False  # no proxy leads to this machine
    adapter = HTTPAdapter(pool_maxsize=_CONNECTIONS)
    for scheme in ("https://", "http://"):
        http.mount(scheme, adapter)
    http.hooks["response"] = [_read_error]
    # Requests evaluates a redirect's target even if it does not follow it.
    http.get_redirect_target = lambda resp: None  # type: ignore[method-assign]  # noqa: ARG005
    http.headers["User-Agent"] = f"distlaunch/{__version__}"
    return http


def _anonymous_credentials() -> Credentials:
    from google.auth.credentials import AnonymousCredentials

    class RefreshableAnonymousCredentials(AnonymousCredentials):
        """Anonymous credentials that do not raise when a 401 makes the session refresh them."""

        def refresh(self, request: object) -> None: ...

    return RefreshableAnonymousCredentials()  # type: ignore[no-untyped-call]
