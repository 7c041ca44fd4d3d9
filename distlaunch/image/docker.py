"""The Docker engine that the `docker` command would use."""

from __future__ import annotations

import os
import socket

import docker
from docker.context import ContextAPI

from distlaunch.errors import ImageError
from distlaunch.image.registry.refusals import causes_of

_DEFAULT_ADDRESS = "unix:///var/run/docker.sock"
_START = "start Docker ('sudo systemctl start docker', or Docker Desktop), or set DOCKER_HOST"


class NoDockerError(ImageError):
    """Docker is not installed, not running or cannot be reached."""


def connect_docker(timeout: int = 30) -> docker.DockerClient:
    """Connect to the engine of DOCKER_HOST, or else of Docker's current context.

    Parameters
    ----------
    timeout
        Seconds to wait for an answer, of this call and of those on the client.

    Raises
    ------
    NoDockerError
        If no engine answers, with the remedy.
    """
    address = "the address in DOCKER_HOST or Docker's context"
    try:
        address = _docker_address()
        _check_socket(address)
        return docker.from_env(timeout=timeout, use_ssh_client=True)
    except NoDockerError:
        raise
    except Exception as error:  # docker-py raises all kinds for broken files of its contexts
        raise NoDockerError(_connection_problem(error, address)) from error


def _docker_address() -> str:
    if os.environ.get("DOCKER_HOST"):
        return os.environ["DOCKER_HOST"]
    name = os.environ.get("DOCKER_CONTEXT")
    if name and ContextAPI.get_context(name) is None:
        raise NoDockerError(
            f"DOCKER_CONTEXT: no Docker context named {name!r}; see 'docker context ls'"
        )
    return str(ContextAPI.kwargs_from_context().get("base_url", _DEFAULT_ADDRESS))


def _check_socket(address: str) -> None:
    """Connect once: docker-py leaves its socket open where nothing listens."""
    scheme, _, path = address.partition("://")
    if scheme == "unix":
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(path)


def _connection_problem(error: Exception, address: str) -> str:
    causes = list(causes_of(error))
    if any(isinstance(cause, (FileNotFoundError, ConnectionRefusedError)) for cause in causes):
        return f"Docker is not running at {address}; {_START}"
    if any(isinstance(cause, PermissionError) for cause in causes):
        return (
            f"no permission to use Docker's socket {address}; "
            "run 'sudo usermod -aG docker $USER' and log in again"
        )
    if any("Timeout" in type(cause).__name__ for cause in causes):
        return f"Docker at {address} does not answer; restart it"
    reason = " ".join(str(causes[-1]).split()) or type(causes[-1]).__name__
    return (
        f"cannot connect to Docker at {address} ({reason}); check DOCKER_HOST, DOCKER_TLS_VERIFY "
        "and DOCKER_CERT_PATH"
    )
