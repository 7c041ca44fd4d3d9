"""HTTP requests and uploads to a registry: authenticated, retried, with errors for users."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ProtocolError

from distlaunch.errors import ImageError
from distlaunch.image.reference import DOCKER_HUB, Reference, is_loopback
from distlaunch.image.registry.credentials import Credentials, find_credentials
from distlaunch.image.registry.errors import (
    connection_error,
    denied,
    proxy_page,
    registry_message,
    status_error,
)
from distlaunch.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


# 25 layers at 50 ms a response take 0.3 s; one after the other they take 3.5 s.
THREADS = 8
CHUNK = 1 << 20  # bytes

# docker.io itself is a web site.
_DOCKER_HUB_API = "registry-1.docker.io"
_TRANSIENT = frozenset({429, 500, 502, 503, 504})
_WRITING = frozenset({"post", "put"})
_MAX_WAIT = 60.0  # seconds, whatever Retry-After requests
_MAX_LOGINS = 3  # for one request: to pull, to push, and after a token has expired
_MIN_COMMIT_SECONDS = 600.0  # a registry may copy the whole blob before it responds
_BASIC = re.compile(r"(?:^|,)\s*basic\b", re.IGNORECASE)
_BEARER = re.compile(r"(?:^|,)\s*bearer\b(.*)", re.IGNORECASE)
_PARAMETER = re.compile(r'(\w+)=(?:"([^"]*)"|([^\s,"]+))')


@dataclass(frozen=True, slots=True)
class Blob:
    """Content that can be read more than once."""

    digest: str  # sha256:…
    size: int  # bytes
    chunks: Callable[[], Iterator[bytes]]  # from the beginning

    @classmethod
    def of_bytes(cls, data: bytes) -> Blob:
        """Return a blob in memory."""
        return cls(digest_of(data), len(data), lambda: iter([data]))

    @classmethod
    def of_file(cls, file: Path, digest: str, size: int) -> Blob:
        """Return a blob in a file."""
        return cls(digest, size, partial(_read_file, file))


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Timeouts and retries of requests to a registry; times in seconds."""

    connect: float = 10.0  # for a connection
    read: float = 60.0  # for the next bytes of a response
    retries: int = 5
    delay: float = 0.5  # before the first retry; doubled for each further one


DEFAULT_POLICY = RetryPolicy()


class Authenticator:
    """Answers the challenges of one registry; shared by threads.

    Credentials are looked up, and `header` is set, after the registry has responded with 401.
    `request` sends a request to the token server.
    """

    def __init__(self, reference: Reference, request: Callable[..., requests.Response]) -> None:
        self.header: str | None = None
        self.credentials: Credentials | None = None
        self._reference = reference
        self._request = request
        self._scopes: dict[str, None] = {}  # all that were required so far, in order
        self._lock = threading.Lock()

    def answer(self, response: requests.Response, sent_header: str | None) -> bool:
        """Set `header` by a 401 response; return whether to repeat the request with it."""
        with self._lock:
            if self.header != sent_header:
                return True  # another thread has answered the challenge
            challenges = response.headers.get("WWW-Authenticate", "")
            self.credentials = find_credentials(self._reference.host)
            if bearer := _BEARER.search(challenges):
                parameters = {name: a or b for name, a, b in _PARAMETER.findall(bearer[1])}
                self.header = f"Bearer {self._token(parameters)}"
            elif _BASIC.search(challenges):
                self.header = self._basic()
            return self.header != sent_header

    def _basic(self) -> str | None:
        if self.credentials is None:
            return None
        pair = f"{self.credentials.username}:{self.credentials.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"

    def _token(self, parameters: dict[str, str]) -> str:
        """Request a token for all scopes so far (distribution's token specification)."""
        realm = parameters.get("realm", "")
        parts = urlsplit(realm)
        if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.netloc)):
            raise ImageError(
                f"the token server of {self._reference.host} is {realm!r}, which is not secure",
                remedy="configure the registry with an https address",
            )
        self._scopes.update(dict.fromkeys(parameters.get("scope", "").split()))
        service = parameters.get("service", "")
        basic = self._basic()
        headers = {"Authorization": basic} if basic else {}
        query = {"service": service, "scope": list(self._scopes)}
        response = self._request("get", realm, params=query, headers=headers)
        return self._read_token(response)

    def _read_token(self, response: requests.Response) -> str:
        host = urlsplit(response.url).netloc
        if page := proxy_page(response, self._reference, host):
            raise ImageError(problems=[page])
        if response.status_code in (400, 401, 403):
            pushing = any("push" in scope for scope in self._scopes)
            message = registry_message(response)[1] or str(response.status_code)
            refusal = denied(self._reference, self.credentials, message, pushing=pushing)
            raise ImageError(problems=[refusal])
        try:
            document = response.json()
            token = document.get("access_token") or document.get("token")
        except (ValueError, AttributeError):
            token = None
        if not response.ok or not token:
            raise ImageError(
                f"{host} returns no token for {self._reference.name} ({response.status_code})",
                remedy="try again later",
            )
        return str(token)


class Transport:
    """Requests about one repository over kept connections; shared by threads."""

    def __init__(self, reference: Reference, policy: RetryPolicy) -> None:
        self._reference = reference
        self._policy = policy
        self._host = _DOCKER_HUB_API if reference.host == DOCKER_HUB else reference.host
        self._scheme = "http" if is_loopback(reference.host) else "https"
        self._base_url = f"{self._scheme}://{self._host}/v2/{reference.path}/"
        self._session = _session()
        self._auth = Authenticator(reference, self._request_token)
        self._has_responded = False
        self._cancelled = threading.Event()

    def request(self, method: str, path: str, **kwargs: Any) -> requests.Response:
        """Send a request for a path below the repository, e.g. ``blobs/sha256:…``."""
        response = self._retry(lambda: self._send_authenticated(method, path, **kwargs))
        return self._checked(response, pushing=method in _WRITING)

    def upload(self, blob: Blob, on_progress: Callable[[int], None] = lambda _: None) -> None:
        """Upload a blob unless it exists; start over if the connection breaks.

        `on_progress` is called with the bytes sent so far.
        """
        self._checked(self._retry(lambda: self._try_upload(blob, on_progress)), pushing=True)

    def cancel(self) -> None:
        """Make requests of other threads fail at their next chunk or retry."""
        self._cancelled.set()

    def close(self) -> None:
        self._session.close()

    def _checked(self, response: requests.Response, *, pushing: bool) -> requests.Response:
        if not response.ok:
            raise status_error(response, self._reference, self._auth.credentials, pushing=pushing)
        return response

    def _try_upload(self, blob: Blob, on_progress: Callable[[int], None]) -> requests.Response:
        response = self._send_authenticated("head", f"blobs/{blob.digest}")
        if response.status_code != requests.codes.not_found:
            return response
        response = self._send_authenticated("post", "blobs/uploads/")
        if not response.ok:
            return response
        location = urlsplit(urljoin(response.url, response.headers["Location"]))
        query = urlencode([*parse_qsl(location.query), ("digest", blob.digest)])
        return self._send_authenticated(
            "put",
            location._replace(query=query).geturl(),
            data=_Body(blob.size, lambda: self._sent_chunks(blob, on_progress)) or b"",
            headers={"Content-Type": "application/octet-stream"},
            timeout=(self._policy.connect, max(self._policy.read, _MIN_COMMIT_SECONDS)),
        )

    def _sent_chunks(self, blob: Blob, on_progress: Callable[[int], None]) -> Iterator[bytes]:
        sent = 0
        for chunk in blob.chunks():
            self._wait(0)
            yield chunk
            sent += len(chunk)
            on_progress(sent)

    def _retry(
        self, send: Callable[[], requests.Response], host: Reference | None = None
    ) -> requests.Response:
        """Return the first response without a transient error, or else the last.

        Before the first response only a broken connection is retried: the address may be wrong.
        """
        host, retries = host or self._reference, self._policy.retries
        backoff = Backoff(self._policy.delay)
        while True:
            retry_after = 0.0
            try:
                response = send()
                if response.status_code not in _TRANSIENT or not retries:
                    return response
                retry_after = _retry_after(response)
                response.close()
            except requests.RequestException as problem:
                is_broken = any(isinstance(each, ProtocolError) for each in problem.args)
                if not (self._has_responded or is_broken) or not retries:
                    raise connection_error(problem, host) from problem
            retries -= 1
            self._wait(backoff.next_delay(retry_after) or 0.0)

    def _send_authenticated(self, method: str, path: str, **kwargs: Any) -> requests.Response:
        for _ in range(_MAX_LOGINS):
            header = self._auth.header
            response = self._send(method, path, header, **kwargs)
            if response.status_code != requests.codes.unauthorized:
                break
            if not self._auth.answer(response, header):
                break
        return response

    def _send(
        self, method: str, path: str, authorization: str | None, **kwargs: Any
    ) -> requests.Response:
        url = urljoin(self._base_url, path)
        headers = dict(kwargs.pop("headers", {}))
        if urlsplit(url).netloc == self._host:
            # A registry behind a proxy may not know that it is reached over TLS.
            url = urlsplit(url)._replace(scheme=self._scheme).geturl()
            if authorization:
                headers["Authorization"] = authorization
        response = self._exchange(method, url, headers=headers, **kwargs)
        self._has_responded = True
        return response

    def _request_token(self, method: str, url: str, **kwargs: Any) -> requests.Response:
        host = Reference(f"{urlsplit(url).netloc}/token")
        return self._retry(lambda: self._exchange(method, url, **kwargs), host)

    def _exchange(self, method: str, url: str, **kwargs: Any) -> requests.Response:
        kwargs.setdefault("timeout", (self._policy.connect, self._policy.read))
        return self._session.request(method, url, proxies=_proxies(url), **kwargs)

    def _wait(self, seconds: float) -> None:
        if self._cancelled.wait(seconds):
            raise ImageError("interrupted")


@dataclass(frozen=True, slots=True)
class _Body:
    """A request body of known length that is read again when the request is repeated."""

    size: int
    chunks: Callable[[], Iterator[bytes]]

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[bytes]:
        return self.chunks()


def _retry_after(response: requests.Response) -> float:
    try:
        return min(float(response.headers.get("Retry-After", 0)), _MAX_WAIT)
    except ValueError:  # an HTTP date
        return 0.0


def _proxies(url: str) -> dict[str, str]:
    """Use no proxy for this machine, whatever the environment sets."""
    parts = urlsplit(url)
    return {"no_proxy": parts.hostname or ""} if is_loopback(parts.netloc) else {}


def _session() -> requests.Session:
    session = requests.Session()
    session.auth = lambda request: request  # otherwise ~/.netrc would replace our header
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=THREADS))
    return session


def digest_of(data: bytes) -> str:
    """Return the digest of bytes, ``sha256:…``."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _read_file(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        while chunk := opened.read(CHUNK):
            yield chunk
