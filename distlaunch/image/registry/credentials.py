"""Credentials for registries: Docker's configuration, and google-auth for Google's."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from distlaunch.errors import GoogleError, ImageError
from distlaunch.image.reference import DOCKER_HUB, is_google

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user name with a password, or an identity token.

    Parameters
    ----------
    identity_token
        An OAuth refresh token, without user name and password.
    member
        The account as an IAM member, if known.
    source
        Where the credentials are from, for messages.
    """

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    member: str = ""
    source: str = ""


def find_credentials(host: str) -> Credentials | None:
    """Return the credentials for a registry, None for anonymous requests.

    Docker's configuration is read as Docker does. For Google's registries the order is an entry in
    ``auths``, google-auth, and then a credential helper, which is a process of a second.

    Parameters
    ----------
    host
        The registry, as in `Reference.host`.

    Raises
    ------
    ImageError
        If Docker's configuration or its credential helper fails, or Google returns no token.
    GoogleError
        If the application default credentials exist but cannot be read.
    """
    from docker import auth
    from docker.errors import DockerException

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # docker-py's, of a missing helper: it is an error
            config = auth.load_config()
            if is_google(host):
                stored = _from_docker(config.auths.get(host))
                return stored or _from_google() or _from_docker(config.resolve_authconfig(host))
            return _from_docker(config.resolve_authconfig(None if host == DOCKER_HUB else host))
    except (DockerException, ValueError) as problem:
        raise ImageError(
            f"docker's configuration has no usable credentials for {host} "
            f"({problem.__cause__ or problem}); run 'docker login {host}', or correct "
            "~/.docker/config.json"
        ) from problem


def _from_docker(entry: Mapping[str, str] | None) -> Credentials | None:
    """Convert an entry of docker-py, whose keys are in lower case if it is from ``auths``."""
    values = {key.lower(): value for key, value in (entry or {}).items()}
    source = "docker's configuration"
    if values.get("identitytoken"):
        return Credentials(identity_token=values["identitytoken"], source=source)
    if values.get("username"):
        return Credentials(values["username"], values.get("password", ""), source=source)
    return None


def _from_google() -> Credentials | None:
    """Return an access token of the application default credentials, None if there are none."""
    from google.auth.exceptions import GoogleAuthError, TransportError
    from google.auth.transport.requests import Request

    from distlaunch.google import auth

    try:
        credentials = auth.load_credentials(None)
        credentials.refresh(Request())  # type: ignore[no-untyped-call]
    except GoogleError:
        if auth.credentials_file() is None:
            return None
        raise
    except TransportError as problem:
        raise ImageError("google's token server cannot be reached; check the network") from problem
    except GoogleAuthError as problem:
        reason = " ".join(str(problem.args[0] if problem.args else problem).split())
        raise ImageError(
            f"google's application default credentials return no token ({reason}); "
            "run 'gcloud auth application-default login'"
        ) from problem
    return Credentials(
        "oauth2accesstoken",
        str(credentials.token),
        member=auth.iam_member(credentials) or "",
        source="google's application default credentials",
    )
