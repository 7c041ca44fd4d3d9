"""Docker's configuration file, which has credentials of registries or names their helpers."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch.errors import ImageError, os_reason
from distlaunch.image.reference import DOCKER_HUB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from docker.auth import AuthConfig


def load_config() -> AuthConfig:
    """Return Docker's credentials, or raise ImageError for a file that docker-py cannot read."""
    from docker import auth
    from docker.errors import DockerException
    from docker.utils.config import find_config_file

    path = find_config_file()
    try:
        if path and Path(path).name == "config.json":
            _require_object(Path(path))
        return auth.load_config()
    except (DockerException, OSError, AttributeError, TypeError, ValueError) as error:
        reason = os_reason(error) if isinstance(error, OSError) else str(error)
        raise ImageError(
            f"{path}: not a configuration of Docker ({reason}); correct the file or remove it"
        ) from error


def _require_object(path: Path) -> None:
    if not isinstance(json.loads(path.read_bytes()), dict):
        raise TypeError("expected a JSON object")


def find_entry(config: AuthConfig, host: str) -> Mapping[str, str] | None:
    """Return the entry of a registry as docker-py does, without a helper that is not installed."""
    from docker.auth import AuthConfig

    if _missing_helper(config, host):
        config = AuthConfig({"auths": config.auths})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        entry: Mapping[str, str] | None = config.resolve_authconfig(_key(host))
    return entry


def login_remedy(host: str) -> str:
    """Return how to log in to a registry."""
    from docker.utils.config import find_config_file

    login = f"run 'docker login {host}'"
    config = load_config()
    helper = _missing_helper(config, host)
    if not helper:
        return login
    key = "credHelpers" if host in config.cred_helpers else "credsStore"
    path = find_config_file()
    return f"remove {key} from {path}, as its program {helper} is not installed, and {login}"


def _missing_helper(config: AuthConfig, host: str) -> str:
    """Return the program that is to have a registry's credentials if it is not installed."""
    store = config.get_credential_store(_key(host))
    program = f"docker-credential-{store}"
    return program if store and not shutil.which(program) else ""


def _key(host: str) -> str | None:
    return None if host == DOCKER_HUB else host
