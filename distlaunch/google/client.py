"""One small client for all of Google's JSON APIs."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from random import SystemRandom
from typing import TYPE_CHECKING, Any, NamedTuple

from distlaunch import __version__
from distlaunch.background import Meanwhile
from distlaunch.errors import GoogleError, Unavailable
from distlaunch.google import auth as google_credentials
from distlaunch.google import endpoints, failures
from distlaunch.google.api_errors import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from google.auth.credentials import Credentials
    from google.auth.transport.requests import AuthorizedSession
    from requests import Response

    from distlaunch.ui.events import ShowMessage

Timeout = tuple[float, float]
"""Seconds: to connect, and between two bytes of the answer."""
Params = Mapping[str, str | int | Sequence[str]]

PATIENCE = 60.0  # seconds for which a call that may do better later is tried again

_TIMEOUT: Timeout = (10.0, 60.0)
_RANDOM = SystemRandom()  # which leaves the program's own random numbers alone
_THREADS = 32  # that may use a session at once without new connections
_FIRST_DELAY = 0.5
_LONGEST_DELAY = 16.0
_TELL_AFTER = 5.0  # seconds of waiting before somebody is told of it
_CERTIFICATE = "CERTIFICATE_VERIFY_FAILED"
LARGEST = 64 << 20  # bytes of an answer, decompressed
LONGEST = 120.0  # seconds for a request and its whole answer
_CHUNK = 1 << 16  # bytes
_SHOWN = 40  # bytes of an answer that is no JSON object


class _Request(NamedTuple):
    """What is sent, as often as it takes."""

    method: str
    service: str
    url: str
    params: Params | None
    data: bytes | None
    timeout: Timeout

    @property
    def host(self) -> str:
        return failures.host(self.url)


class Session:
    """Calls to Google, or to who answers in its place.

    Parameters
    ----------
    http
        What sends a request with the credentials.
    endpoint
        Who answers in Google's place, if anyone does.
    project
        The project that the calls are for, for messages.
    clock, sleep
        Seconds.
    tell
        Shows that a call is being retried for some time, and what is skipped.
    """

    def __init__(
        self,
        http: AuthorizedSession,
        *,
        endpoint: str | None,
        project: str | None,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        tell: ShowMessage | None,
    ) -> None:
        self.endpoint = endpoint
        self.sleep = sleep
        self.http = http
        self.project = project
        self.clock = clock
        self._tell = tell

    @property
    def credentials(self) -> Credentials:
        """What its calls are signed with."""
        found: Credentials = self.http.credentials
        return found

    def sign_in(self, timeout: float = _TIMEOUT[1]) -> None:
        """Get a token ahead of the calls, so that several threads do not each ask for one.

        Parameters
        ----------
        timeout
            Seconds that who gives it may be silent.

        Raises
        ------
        Unavailable
            If there is no answer.
        GoogleError
            If the credentials are not accepted.
        """
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import Request

        if self.credentials.valid:
            return
        try:
            self.credentials.refresh(partial(Request(), timeout=timeout))  # type: ignore[no-untyped-call]
        except GoogleAuthError as problem:
            raise failures.no_token(problem) from problem

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
        patience: float = PATIENCE,
        timeout: Timeout = _TIMEOUT,
    ) -> dict[str, Any]:
        """Return the answer to a call.

        Parameters
        ----------
        service, path, version
            As in `endpoints.url`.
        params
            What stands behind the path; a list is a parameter that stands there several times.
        region
            Where the service is regional.
        patience
            Seconds for which what is transient is tried again; 0 for a single attempt.
        timeout
            Seconds to connect, and between two bytes of the answer.

        Raises
        ------
        Unavailable
            If there is no answer, or it asks to come back later; the call may have been heard.
        GoogleError
            If it is refused.
        """
        url = endpoints.url(service, path, region=region, endpoint=self.endpoint, version=version)
        data = None if body is None else json.dumps(body).encode()
        request = _Request(method, service, url, params, data, timeout)
        began = self.clock()
        has_told = False
        for delay in delays():
            answer = self._attempt(request)
            if not isinstance(answer, Unavailable):
                return answer
            wait = max(delay, answer.wait)
            waited = self.clock() - began + wait
            if waited > patience or self.is_in_vain(answer):
                raise answer
            if waited > _TELL_AFTER and self._tell and not has_told:
                self._tell(f"{answer}; trying again")
                has_told = True
            self.sleep(wait)
        raise AssertionError  # there is always another delay

    def invalid(self, service: str, problem: str, *, region: str | None = None) -> GoogleError:
        """Return the error for an answer that is JSON, but not what the API documents."""
        url = endpoints.url(service, "", region=region, endpoint=self.endpoint)
        return failures.invalid(failures.host(url), problem)

    def warn(self, text: str) -> None:
        """Show a warning."""
        if self._tell:
            self._tell(text, "warning")

    def _attempt(self, request: _Request) -> dict[str, Any] | Unavailable:
        try:
            return _json(request, self._once(request))
        except Unavailable as problem:
            return problem

    def _once(self, request: _Request) -> bytes:
        response = self._response(request)
        if not 200 <= response.status_code < 300:
            raise Refusal(
                response.status_code,
                response.headers,
                response.content,
                service=request.service,
                host=request.host,
                project=self.project,
                member=google_credentials.member(self.credentials),
            ).problem()
        if len(response.content) > LARGEST:
            raise failures.invalid(request.host, f"larger than {LARGEST >> 20} MiB")
        return response.content

    def _response(self, request: _Request) -> Response:
        """Send a request once and return the answer.

        Requests' own timeout is one for each read, which a server that sends a byte a second never
        exceeds. So the request is made on a thread, which is abandoned after `LONGEST`.
        """
        from google.auth.exceptions import GoogleAuthError
        from requests.exceptions import ContentDecodingError, RequestException

        try:
            return Meanwhile(partial(self._exchange, request)).result(LONGEST)
        except TimeoutError as problem:
            raise Unavailable(
                f"no complete answer from {request.host} within {LONGEST:g} s",
                reason="UNREACHABLE",
            ) from problem
        except GoogleAuthError as problem:
            raise failures.no_token(problem) from problem
        except ContentDecodingError as problem:
            raise failures.garbled(request.host, failures.why(problem)) from problem
        except RequestException as problem:
            raise self._unreachable(request.url, problem) from problem

    def _exchange(self, request: _Request) -> Response:
        headers = {"Content-Type": "application/json"} if request.data is not None else {}
        response: Response = self.http.request(  # type: ignore[no-untyped-call]
            request.method,
            request.url,
            params=request.params,
            data=request.data,
            headers=headers,
            timeout=request.timeout,
            allow_redirects=False,
            stream=True,
            hooks={"response": _read},
        )
        return response

    def _unreachable(self, url: str, problem: Exception) -> GoogleError:
        from requests.exceptions import ConnectTimeout

        why, host = failures.why(problem), failures.host(url)
        if _CERTIFICATE in str(problem):
            return GoogleError(
                f"the certificate of {host} is not trusted ({why}); name the file with your "
                "network's certificates in the variable REQUESTS_CA_BUNDLE"
            )
        heard = not isinstance(problem, ConnectTimeout) and not failures.was_not_sent(problem)
        hint = ""
        if not heard and endpoints.is_loopback(self.endpoint):
            hint = "; 'distlaunch emulator' has to run there"
        return Unavailable(f"cannot reach {host} ({why}){hint}", reason="UNREACHABLE", heard=heard)

    def is_in_vain(self, problem: Unavailable) -> bool:
        """Whether waiting is in vain: a port of this machine's that nobody listens on."""
        is_unheard = problem.reason == "UNREACHABLE" and not problem.heard
        return is_unheard and endpoints.is_loopback(self.endpoint)


def connect(
    endpoint: str | None = None,
    *,
    project: str | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    tell: ShowMessage | None = None,
) -> Session:
    """Return a session; no API is called yet.

    Parameters
    ----------
    endpoint
        Who answers in Google's place: ``http://`` on loopback, where no credentials are used, or
        ``https://``, which gets the real ones.
    project
        Pays for the calls (quota) where the credentials name no other.
    clock, sleep
        Seconds.
    tell
        Shows that a call is being retried for some time, and what is skipped.

    Raises
    ------
    GoogleError
        If there are no credentials, with the command that makes them.
    UsageProblem
        If the endpoint is none of the two.
    """
    endpoint = endpoints.checked(endpoint) if endpoint else None
    http = _anonymous() if endpoints.is_loopback(endpoint) else _authorized(project)
    _prepare(http)
    http.headers["User-Agent"] = f"distlaunch/{__version__}"
    return Session(http, endpoint=endpoint, project=project, clock=clock, sleep=sleep, tell=tell)


def delays() -> Iterator[float]:
    """Return the seconds to wait after each failure: doubled each time, and none like another's."""
    delay = _FIRST_DELAY
    while True:
        yield delay * _RANDOM.uniform(0.5, 1.0)
        delay = min(2 * delay, _LONGEST_DELAY)


def _json(request: _Request, body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        shown = body[:_SHOWN].decode("utf-8", "replace")
        raise failures.garbled(request.host, f"expected a JSON object, got {shown!r}")
    return answer


def _read(response: Response, **_: Any) -> None:
    """Read the body of an answer, and leave off where it is too large."""
    body = bytearray()
    with response:
        for chunk in response.iter_content(_CHUNK):
            body += chunk
            if len(body) > LARGEST:
                break
    response._content = bytes(body)  # noqa: SLF001 - Requests itself has no limit


def _prepare(http: AuthorizedSession) -> None:
    """Let several threads have a connection each to one host, and ignore redirects."""
    from requests.adapters import HTTPAdapter

    adapter = HTTPAdapter(pool_maxsize=_THREADS)
    for scheme in ("https://", "http://"):
        http.mount(scheme, adapter)
    # Requests looks at a redirect's target, although it does not follow it.
    http.get_redirect_target = lambda resp: None  # type: ignore[method-assign]  # noqa: ARG005


def _anonymous() -> AuthorizedSession:
    from google.auth.credentials import AnonymousCredentials
    from google.auth.transport.requests import AuthorizedSession

    class Nobody(AnonymousCredentials):
        """No credentials, which can be renewed as others can, so that a 401 is no other case."""

        def refresh(self, request: object) -> None: ...

    http = AuthorizedSession(Nobody(), max_refresh_attempts=1)  # type: ignore[no-untyped-call]
    http.trust_env = False  # no proxy leads to this machine
    return http


def _authorized(project: str | None) -> AuthorizedSession:
    found = google_credentials.find(project)
    from google.auth.transport.requests import AuthorizedSession

    return AuthorizedSession(found, max_refresh_attempts=1)  # type: ignore[no-untyped-call]
