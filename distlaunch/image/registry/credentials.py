"""Credentials for registries: Docker's configuration, or Google's default credentials."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from distlaunch.errors import GoogleError, ImageError, RetryableError
from distlaunch.image.reference import DOCKER_HUB, is_google
from distlaunch.image.registry import RegistryUnreachable

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user name with a password."""

    username: str
    password: str = field(repr=False)
    member: str = ""  # the account as an IAM member, if known
    source: str = ""  # for messages


def find_credentials(host: str) -> Credentials | None:
    """Return the credentials for a registry, None for anonymous requests.

    Docker's configuration is read as Docker does. For Google's registries the order is an entry in
    ``auths``, google-auth, and then a credential helper, which is a process of a second.

    ImageError is raised if Docker's configuration or its credential helper fails, or Google
    returns no token.
    """
    from docker.errors import DockerException

    from distlaunch.docker_client import load_config

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
            f"docker's configuration has no usable credentials for {host} ({reason})",
            remedy=f"run 'docker login {host}', or correct ~/.docker/config.json",
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
        raise ImageError(problems=problem.problems) from problem
    try:
        tokens.refresh(credentials)
    except GoogleError as problem:
        kind = RegistryUnreachable if isinstance(problem, RetryableError) else ImageError
        raise kind(problems=problem.problems) from problem
    return Credentials(
        "oauth2accesstoken",
        str(credentials.token),
        member=auth.iam_member(credentials) or "",
        source="google's application default credentials",
    )
