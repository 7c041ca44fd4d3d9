"""Requests to a registry: python-dxf's, with patience, our credentials and telling errors."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from random import SystemRandom
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import requests
from dxf import DXF
from requests.adapters import HTTPAdapter

from distlaunch.errors import ImageError
from distlaunch.image.reference import DOCKER_HUB, Reference, is_loopback
from distlaunch.image.registry.authentication import Authentication
from distlaunch.image.registry.credentials import Credentials, credentials
from distlaunch.image.registry.refusals import Refused, is_final, refused, unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

THREADS = 8

_DOCKER_HUB_API = "registry-1.docker.io"
_RANDOM = SystemRandom()  # which leaves the program's own random numbers alone
_TRANSIENT = frozenset({429, 500, 502, 503, 504})
_LOST = frozenset({404, 416})  # an upload that the registry no longer knows, or at another place
_WRITING = frozenset({"post", "put", "patch"})
_LONGEST_WAIT = 60.0  # seconds, whatever Retry-After says
_MOST_LOGINS = 3  # for one request: to pull, to push, and after a token has expired


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a registry is waited for.

    Parameters
    ----------
    connect, read
        Seconds to a connection, and to the next bytes of an answer.
    delays
        Seconds between tries; each is spread by half of it.
    """

    connect: float = 10.0
    read: float = 60.0
    delays: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0)


PATIENT = Patience()


class Broken(Exception):
    """A connection broke, or the registry failed, in what cannot just be asked again."""

    def __init__(self, told: ImageError) -> None:
        super().__init__(str(told))
        self.told = told


class Transport(DXF):
    """Requests about one repository, on connections that are kept; threads may share it.

    All of python-dxf's methods come to `_base_request`, which here tries again what is transient,
    answers what the registry asks of us, and raises `ImageError`.

    Attributes
    ----------
    sent
        Bytes of all bodies so far.
    """

    def __init__(
        self,
        reference: Reference,
        *,
        patience: Patience = PATIENT,
        find: Callable[[str], Credentials | None] = credentials,
    ) -> None:
        host = _DOCKER_HUB_API if reference.host == DOCKER_HUB else reference.host
        super().__init__(host, reference.path, insecure=reference.is_loopback)
        self.reference = reference
        self.patience = patience
        self.sent = 0
        self._http = _session()
        self._who = Authentication(reference, self._ask_for_token, find)
        self._answered = False
        self._abandoned = threading.Event()
        self._counting = threading.Lock()
        self._turning = threading.Lock()

    def request(self, method: str, path: str, **kwargs: Any) -> requests.Response:
        """Send a request about the repository.

        Parameters
        ----------
        path
            As ``blobs/sha256:…``, or an address that the registry gave.

        Raises
        ------
        Refused
            If the registry answers with no success.
        ImageError
            If it cannot be reached.
        Broken
            If this happened with a body that is a stream, which only its sender can begin again.
        """
        response: requests.Response = self._request(method, path, **kwargs)  # type: ignore[no-untyped-call]
        return response

    def wait(self, seconds: float) -> None:
        """Wait before another try, unless all was abandoned.

        Raises
        ------
        ImageError
            If it was.
        """
        if self._abandoned.wait(seconds):
            raise ImageError("interrupted")

    def abandon(self) -> None:
        """Have whatever is under way in other threads end soon."""
        self._abandoned.set()

    def close(self) -> None:
        self._http.close()

    def counted(self, chunks: Iterator[bytes], seen: Callable[[int], None]) -> Iterator[bytes]:
        """Yield what is sent, counting it."""
        for chunk in chunks:
            self.wait(0)
            yield chunk
            self._count(len(chunk))
            seen(len(chunk))

    def _base_request(self, method: str, path: str, **kwargs: Any) -> requests.Response:
        body = kwargs.get("data", b"")
        if not isinstance(body, bytes | str):
            return self._once(method, path, **kwargs)
        response = self._with_patience(method, path, **kwargs)
        self._count(len(body))
        return response

    def _with_patience(self, method: str, path: str, **kwargs: Any) -> requests.Response:
        tries = 1 + len(self.patience.delays)
        for attempt in range(1, tries + 1):
            try:
                response = self._authenticated(method, path, **kwargs)
            except requests.RequestException as problem:
                if attempt == tries or is_final(problem, answered=self._answered):
                    raise unreachable(problem, self.reference, tries=attempt) from problem
                self.wait(self._delay(attempt))
                continue
            self._answered = True
            if response.ok:
                return response
            if attempt == tries or response.status_code not in _TRANSIENT:
                raise self._refused(response, method, tries=attempt)
            response.close()
            self.wait(self._delay(attempt, response))
        raise AssertionError

    def _once(self, method: str, path: str, **kwargs: Any) -> requests.Response:
        """Send a stream, which is not here to be sent again."""
        said = self._who.header
        try:
            response = self._send(method, path, said, **kwargs)
        except requests.RequestException as problem:
            raise Broken(unreachable(problem, self.reference)) from problem
        if response.ok:
            return response
        told = self._refused(response, method)
        may_help = response.status_code == 401 and self._who.answer(response, said)
        if may_help or response.status_code in (*_TRANSIENT, *_LOST):
            raise Broken(told)
        raise told

    def _refused(self, response: requests.Response, method: str, *, tries: int = 1) -> Refused:
        return refused(
            response, self.reference, self._who.who, pushing=method in _WRITING, tries=tries
        )

    def _authenticated(self, method: str, path: str, **kwargs: Any) -> requests.Response:
        """Send a request, and again with what is asked of us."""
        for _ in range(_MOST_LOGINS - 1):
            said = self._who.header
            response = self._send(method, path, said, **kwargs)
            if response.status_code != 401 or not self._who.answer(response, said):
                return response
            response.close()
        return self._send(method, path, self._who.header, **kwargs)

    def _send(self, method: str, path: str, said: str | None, **kwargs: Any) -> requests.Response:
        url = self._url(path)
        headers = dict(kwargs.pop("headers", {}))
        if said and urlsplit(url).netloc == self._host:
            headers["Authorization"] = said
        timeout = kwargs.pop("timeout", (self.patience.connect, self.patience.read))
        about: dict[str, Any] = {"headers": headers, "timeout": timeout, **kwargs}
        try:
            response = self._http.request(method, url, proxies=_proxies(url), **about)
        except requests.ConnectionError:
            if not self._turned_to_tls(url):
                raise
            return self._send(method, path, said, **about)
        if response.status_code == 400 and self._turned_to_tls(url):
            response.close()
            return self._send(method, path, said, **about)
        return response

    def _turned_to_tls(self, url: str) -> bool:
        """Speak TLS from now on to a registry on this machine that refused the first request."""
        with self._turning:
            if self._insecure and not self._answered and _speaks_tls(self._host):
                self._insecure = False
                self._base_url = f"https://{self._host}/v2/"
            return url.startswith("http:") and not self._insecure

    def _url(self, path: str) -> str:
        """Return where a path leads; a registry behind a proxy may not know that it has TLS."""
        url = urljoin(self._base_url, path)
        parts = urlsplit(url)
        if parts.netloc == self._host:
            return parts._replace(scheme="http" if self._insecure else "https").geturl()
        return url

    def _ask_for_token(self, method: str, url: str, **kwargs: Any) -> requests.Response:
        timeout = (self.patience.connect, self.patience.read)
        server = Reference(f"{urlsplit(url).netloc}/token")
        for attempt, delay in enumerate((*self.patience.delays, None), 1):
            try:
                response = self._http.request(
                    method, url, timeout=timeout, proxies=_proxies(url), **kwargs
                )
            except requests.RequestException as problem:
                if delay is None or is_final(problem, answered=False):
                    raise unreachable(problem, server, tries=attempt) from problem
            else:
                if delay is None or response.status_code not in _TRANSIENT:
                    return response
            self.wait(self._delay(attempt))
        raise AssertionError

    def _delay(self, attempt: int, response: requests.Response | None = None) -> float:
        planned = self.patience.delays[attempt - 1] * _RANDOM.uniform(0.5, 1.5)
        try:
            asked = float(response.headers.get("Retry-After", 0)) if response is not None else 0.0
        except ValueError:
            asked = 0.0
        return max(planned, min(asked, _LONGEST_WAIT))

    def _count(self, size: int) -> None:
        with self._counting:
            self.sent += size


def _proxies(url: str) -> dict[str, str]:
    """Have no proxy between us and this machine, whatever the environment says."""
    parts = urlsplit(url)
    return {"no_proxy": parts.hostname or ""} if is_loopback(parts.netloc) else {}


def _session() -> requests.Session:
    session = requests.Session()
    session.auth = _nothing_of_netrc
    adapter = HTTPAdapter(pool_connections=4, pool_maxsize=THREADS)
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    return session


def _nothing_of_netrc(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Leave a request as it is; without this, ~/.netrc would lie over our header."""
    return request


def _speaks_tls(host: str) -> bool:
    import socket
    import ssl

    name, _, port = host.rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # only to find out the protocol
    try:
        with (
            socket.create_connection((name.strip("[]"), int(port)), timeout=5) as plain,
            context.wrap_socket(plain),
        ):
            return True
    except (OSError, ValueError):
        return False
