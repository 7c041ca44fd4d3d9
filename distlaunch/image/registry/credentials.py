"""Credentials for registries, and the login with them: Basic, or Bearer tokens."""

from __future__ import annotations

import base64
import re
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from distlaunch.errors import GoogleError, ImageError, RetryableError
from distlaunch.image.reference import DOCKER_HUB, is_google, is_loopback
from distlaunch.image.registry.docker_config import load_config
from distlaunch.image.registry.errors import (
    Credentials,
    RegistryUnreachable,
    denied,
    registry_message,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import requests

    from distlaunch.image.reference import Reference

_BASIC = re.compile(r"(?:^|,)\s*basic\b", re.IGNORECASE)
_BEARER = re.compile(r"(?:^|,)\s*bearer\b(.*)", re.IGNORECASE)
_PARAMETER = re.compile(r'(\w+)=(?:"([^"]*)"|([^\s,"]+))')


def find_credentials(host: str) -> Credentials | None:
    """Return the credentials for a registry, None for anonymous requests.

    Docker's configuration is read as Docker does. For Google's registries the order is an entry in
    ``auths``, google-auth, and then a credential helper, which is a process of a second.

    ImageError is raised if Docker's configuration or its credential helper fails, or Google
    returns no token.
    """
    from docker.errors import DockerException

    config = load_config(host)
    key = None if host == DOCKER_HUB else host
    try:
        if is_google(host):
            stored = _from_docker(config.auths.get(host))
            return stored or _from_google() or _from_docker(config.resolve_authconfig(key))
        return _from_docker(config.resolve_authconfig(key))
    except DockerException as problem:
        reason = " ".join(str(problem.__cause__ or problem).split())
        raise ImageError(
            f"docker's configuration has no usable credentials for {host} ({reason}); run 'docker "
            f"login {host}', or correct ~/.docker/config.json"
        ) from problem


def _from_docker(entry: Mapping[str, str] | None) -> Credentials | None:
    """Convert an entry of docker-py, whose keys are in lower case if it is from ``auths``."""
    values = {key.lower(): value for key, value in (entry or {}).items()}
    if not values.get("username"):  # none, or an identity token
        return None
    password = values.get("password", "")
    return Credentials(values["username"], password, source="docker's configuration")


def _from_google() -> Credentials | None:
    """Return an access token of the application default credentials, None if there are none."""
    from distlaunch.engines.vertex import auth, tokens

    try:
        credentials = auth.load_credentials(None)
    except GoogleError as problem:
        if auth.credentials_file() is None:
            return None
        raise ImageError(str(problem)) from problem
    try:
        tokens.refresh(credentials)
    except GoogleError as problem:
        kind = RegistryUnreachable if isinstance(problem, RetryableError) else ImageError
        raise kind(str(problem)) from problem
    return Credentials(
        "oauth2accesstoken",
        str(credentials.token),
        member=auth.iam_member(credentials) or "",
        source="google's application default credentials",
    )


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
        self._require_secure(realm)
        self._scopes.update(dict.fromkeys(parameters.get("scope", "").split()))
        service = parameters.get("service", "")
        basic = self._basic()
        headers = {"Authorization": basic} if basic else {}
        query = {"service": service, "scope": list(self._scopes)}
        response = self._request("get", realm, params=query, headers=headers)
        return self._read_token(response)

    def _require_secure(self, realm: str) -> None:
        parts = urlsplit(realm)
        if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.netloc)):
            raise ImageError(
                f"the token server of {self._reference.host} is {realm!r}, which is not secure; "
                "configure the registry with an https address"
            )

    def _read_token(self, response: requests.Response) -> str:
        if response.status_code in (400, 401, 403):
            pushing = any("push" in scope for scope in self._scopes)
            message = registry_message(response)[1] or str(response.status_code)
            raise ImageError(denied(self._reference, self.credentials, message, pushing=pushing))
        try:
            document = response.json()
            token = document.get("access_token") or document.get("token")
        except (ValueError, AttributeError):
            token = None
        if not response.ok or not token:
            raise ImageError(
                f"{urlsplit(response.url).netloc} returns no token for {self._reference.name} "
                f"({response.status_code}); try again later"
            )
        return str(token)
