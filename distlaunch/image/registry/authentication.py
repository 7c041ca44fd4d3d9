"""How a registry is told who we are: what it asks for, and what it gets."""

from __future__ import annotations

import base64
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from distlaunch.errors import ImageError
from distlaunch.image.reference import is_loopback
from distlaunch.image.registry.credentials import Credentials, credentials

if TYPE_CHECKING:
    from collections.abc import Callable

    import requests

    from distlaunch.image.reference import Reference

_CLIENT = "distlaunch"


class Authentication:
    """What we say of ourselves to one registry; several threads may ask at once.

    Nothing is said, and no credentials are looked for, before the registry asks.

    Parameters
    ----------
    reference
        An image there; for messages, too.
    ask
        Sends a request to the server that gives out tokens.

    Attributes
    ----------
    header
        The ``Authorization`` header, None as long as none is wanted.
    who
        The credentials in use.
    """

    def __init__(
        self,
        reference: Reference,
        ask: Callable[..., requests.Response],
        find: Callable[[str], Credentials | None] = credentials,
    ) -> None:
        self.header: str | None = None
        self.who: Credentials | None = None
        self._reference = reference
        self._ask = ask
        self._find = find
        self._scopes: dict[str, None] = {}  # in the order of asking
        self._lock = threading.Lock()

    def answer(self, response: requests.Response, said: str | None) -> bool:
        """Take in that a request was refused with 401; return whether to ask again.

        Parameters
        ----------
        said
            The header that the refused request carried.

        Raises
        ------
        ImageError
            If the credentials cannot be had, or are not accepted.
        """
        import www_authenticate  # type: ignore[import-untyped]

        with self._lock:
            if self.header != said:
                return True  # another thread was quicker
            try:
                wanted = www_authenticate.parse(response.headers.get("www-authenticate", ""))
            except ValueError:
                return False
            self.who = self._find(self._reference.host)
            if "bearer" in wanted:
                self.header = f"Bearer {self._token(dict(wanted['bearer'] or {}))}"
            elif "basic" in wanted and self.who is not None:
                self.header = self._basic()
            return self.header != said

    def _basic(self) -> str | None:
        if self.who is None or not self.who.username:
            return None
        pair = f"{self.who.username}:{self.who.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"

    def _token(self, wanted: dict[str, str]) -> str:
        """Ask for a token (distribution's token specification) for all that was ever wanted."""
        realm = wanted.get("realm", "")
        self._need_safe(realm)
        self._scopes.update(dict.fromkeys(wanted.get("scope", "").split()))
        about: dict[str, Any] = {"service": wanted.get("service", "")}
        if self.who is not None and self.who.identity_token:
            form = {
                **about,
                "grant_type": "refresh_token",
                "client_id": _CLIENT,
                "scope": " ".join(self._scopes),
                "refresh_token": self.who.identity_token,
            }
            response = self._ask("post", realm, data=form)
        else:
            basic = self._basic()
            headers = {"Authorization": basic} if basic else {}
            about["scope"] = list(self._scopes)
            response = self._ask("get", realm, params=about, headers=headers)
        return self._read(response)

    def _need_safe(self, realm: str) -> None:
        parts = urlsplit(realm)
        if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.netloc)):
            raise ImageError(
                f"{self._reference.host} wants credentials sent to {realm!r}, which is not safe; "
                "have the registry name an https address"
            )

    def _read(self, response: requests.Response) -> str:
        if response.status_code in (400, 401, 403):
            host = self._reference.host
            with_what = f"the credentials from {self.who.source}" if self.who else "nobody"
            raise ImageError(
                f"{host} does not let in {with_what} ({response.status_code}); "
                f"run '{self._remedy()}'"
            )
        try:
            answer = response.json()
            token = answer.get("access_token") or answer.get("token")
        except (ValueError, AttributeError):
            token = None
        if not response.ok or not token:
            raise ImageError(
                f"{urlsplit(response.url).netloc} gives no token for {self._reference.name} "
                f"({response.status_code}); try again later"
            )
        return str(token)

    def _remedy(self) -> str:
        if self._reference.is_google:
            return "gcloud auth application-default login"
        return f"docker login {self._reference.host}"
