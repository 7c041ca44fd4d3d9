"""Docker on this machine: its engine and its configuration."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import docker
import docker.auth
from docker.auth import AuthConfig
from docker.constants import DEFAULT_NPIPE, IS_WINDOWS_PLATFORM
from docker.context import ContextAPI
from docker.context.config import get_current_context_name
from docker.errors import DockerException
from docker.utils.config import find_config_file

from distlaunch.errors import ImageError, causes_of, os_reason

_DEFAULT_ADDRESS = DEFAULT_NPIPE if IS_WINDOWS_PLATFORM else "unix:///var/run/docker.sock"
# https://learn.microsoft.com/windows/win32/debug/system-error-codes--0-499-
_FILE_NOT_FOUND, _ACCESS_DENIED = 2, 5


class NoDockerError(ImageError):
    """Docker is not installed, not running or cannot be reached."""


def connect_docker(timeout: int = 30) -> docker.DockerClient:
    """Connect to Docker at DOCKER_HOST, or else in Docker's current context.

    The timeout, in seconds, is for each response, also to later calls on the client. NoDockerError
    is raised with the remedy if no engine answers.
    """
    address = "the address in DOCKER_HOST or Docker's context"
    load_config()  # docker-py fails at a broken file
    try:
        address = _docker_address()
        _check_socket(address)
        return docker.from_env(timeout=timeout, use_ssh_client=True)
    except NoDockerError:
        raise
    except Exception as error:  # docker-py raises all kinds for broken files of its contexts
        raise NoDockerError(_connection_problem(error, address)) from error


def _docker_address() -> str:
    if address := os.environ.get("DOCKER_HOST"):
        if "://" not in address:  # the docker command refuses it, docker-py takes it as tcp
            scheme = "unix" if address.startswith("/") else "tcp"
            raise NoDockerError(f"DOCKER_HOST: no scheme in {address}; set {scheme}://{address}")
        return address
    variable = os.environ.get("DOCKER_CONTEXT")
    name = variable or get_current_context_name()
    if name and ContextAPI.get_context(name) is None:  # docker-py takes the default one
        source = "DOCKER_CONTEXT" if variable else f"{find_config_file()!s}: currentContext"
        raise NoDockerError(f"{source}: no Docker context named {name!r}; see 'docker context ls'")
    return str(ContextAPI.kwargs_from_context().get("base_url", _DEFAULT_ADDRESS))


def _check_socket(address: str) -> None:
    """Connect once: docker-py leaves its socket open where nothing listens."""
    scheme, _, path = address.partition("://")
    if scheme == "unix" and sys.platform != "win32":
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(path)


def _connection_problem(error: Exception, address: str) -> str:
    causes = list(causes_of(error))
    if address.startswith("ssh://") and not find_spec("paramiko"):
        install = f"{sys.executable} -m pip install paramiko"
        return f"Docker at {address} needs the Python package paramiko; run '{install}'"
    codes = {getattr(cause, "winerror", None) for cause in causes}  # pywin32's is no OSError
    nowhere = (FileNotFoundError, ConnectionRefusedError)
    if _FILE_NOT_FOUND in codes or any(isinstance(cause, nowhere) for cause in causes):
        if _is_podman():
            return (
                f"podman does not listen at {address}; run 'systemctl --user start podman.socket' "
                "and 'export DOCKER_HOST=unix://$XDG_RUNTIME_DIR/podman/podman.sock'"
            )
        return (
            f"Docker is not running at {address}; start Docker ('sudo systemctl start docker', or "
            "Docker Desktop), or set DOCKER_HOST"
        )
    if _ACCESS_DENIED in codes:
        return f"no permission to use Docker at {address}; join the group docker-users of Windows"
    if any(isinstance(cause, PermissionError) for cause in causes):
        return (
            f"no permission to use Docker's socket {address}; "
            "run 'sudo usermod -aG docker $USER' and log in again"
        )
    reason = " ".join(str(causes[-1]).split()) or type(causes[-1]).__name__
    return (
        f"cannot connect to Docker at {address} ({reason}); restart Docker, or check DOCKER_HOST, "
        "DOCKER_TLS_VERIFY and DOCKER_CERT_PATH"
    )


def _is_podman() -> bool:
    """Return whether the `docker` command is podman's."""
    command = shutil.which("docker") or "true"
    done = subprocess.run([command, "--version"], capture_output=True, check=False)
    return b"podman" in (done.stdout + done.stderr).lower()


def load_config(host: str = "") -> AuthConfig:
    """Return Docker's credentials, without the helper of a registry if it is not installed.

    ImageError is raised for a file that docker-py cannot read.
    """
    config = _read()
    return AuthConfig({"auths": config.auths}) if _missing_helper(config, host) else config


def docker_login(host: str) -> str:
    """Return how to log in to a registry."""
    config, login = _read(), f"run 'docker login {host}'"
    helper = _missing_helper(config, host)
    if not helper:
        return login
    key = "credHelpers" if host in config.cred_helpers else "credsStore"
    return f"remove {key} ({helper} is not installed) from {_path()}, and {login}"


def _read() -> AuthConfig:
    path = _path()
    try:
        if path.endswith("config.json"):
            json.loads(Path(path).read_bytes())
        return docker.auth.load_config()
    except OSError as error:
        reason = os_reason(error)
    except (AttributeError, TypeError):
        reason = "a value is not of the expected type"
    except (DockerException, ValueError) as error:
        reason = str(error)
    raise ImageError(
        f"not a configuration of Docker ({reason})",
        where=path,
        remedy="correct the file or remove it",
    )


def _path() -> str:
    return str(find_config_file() or "")


def _missing_helper(config: AuthConfig, host: str) -> str:
    """Return the program that is to have a registry's credentials if it is not installed."""
    store = config.get_credential_store(host)
    program = f"docker-credential-{store}"
    return program if store and not shutil.which(program) else ""
