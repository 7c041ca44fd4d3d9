"""Where a container engine is, and the way to it."""

from __future__ import annotations

import os
import socket
from typing import Any

import docker
from docker.context import ContextAPI
from docker.errors import DockerException
from docker.utils import config as docker_config
from docker.utils.proxy import ProxyConfig

from distlaunch.image.engine import problems


def connected(patience: float) -> Any:
    """Return docker-py's client of the engine that docker's own command would use.

    Its type is left open: docker-py's types know of no calls without a time limit.

    Parameters
    ----------
    patience
        Seconds that it is waited for.

    Raises
    ------
    NoEngineError
        If none answers.
    """
    where = _where()
    address = str(where.get("base_url") or "unix:///var/run/docker.sock")
    try:
        _knock(address)
        options: dict[str, Any] = {**where, "version": "auto", "timeout": patience}
        return docker.APIClient(**options)
    except (DockerException, ValueError, OSError) as problem:
        raise problems.no_engine(problem, address) from problem


def _knock(address: str) -> None:
    """See that somebody listens at a socket; docker-py would leave it open where nobody does."""
    scheme, _, path = address.partition("://")
    if scheme == "unix":
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(path)


def _where() -> dict[str, Any]:
    """Return where the engine is: by docker's variables, or else by docker's current context."""
    try:
        said = docker.utils.kwargs_from_env()
        if said:
            return dict(said)
        found = ContextAPI.get_context(os.environ.get("DOCKER_CONTEXT") or None)
    except Exception as problem:  # docker-py raises all sorts, for broken files of its contexts
        raise problems.no_engine(problem, "what DOCKER_HOST and docker's context name") from problem
    if found is None:
        raise problems.NoEngineError(
            "docker has no context of the name that is said; see 'docker context ls'"
        )
    if not found.Host:
        return {}
    return {"base_url": found.Host, **({"tls": found.TLSConfig} if found.TLSConfig else {})}


def proxies() -> dict[str, str]:
    """Return the proxies that docker's configuration has for what runs in a build."""
    said = docker_config.load_general_config().get("proxies", {})
    found: Any = ProxyConfig.from_dict(said.get("default", {})).get_environment()
    return dict(found)
