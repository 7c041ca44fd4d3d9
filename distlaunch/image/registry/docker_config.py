"""Docker's configuration file, which has credentials of registries or names their helpers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch.errors import ImageError, os_reason

if TYPE_CHECKING:
    from docker.auth import AuthConfig


def load_config(host: str = "") -> AuthConfig:
    """Return Docker's credentials, without the helper of a registry if it is not installed.

    ImageError is raised for a file that docker-py cannot read.
    """
    from docker.auth import AuthConfig

    config = _read()
    return AuthConfig({"auths": config.auths}) if _missing_helper(config, host) else config


def login_remedy(host: str) -> str:
    """Return how to log in to a registry."""
    config, login = _read(), f"run 'docker login {host}'"
    helper = _missing_helper(config, host)
    if not helper:
        return login
    key = "credHelpers" if host in config.cred_helpers else "credsStore"
    return f"remove {key} ({helper} is not installed) from {_path()}, and {login}"


def _read() -> AuthConfig:
    from docker import auth
    from docker.errors import DockerException

    path = _path()
    try:
        if path.endswith("config.json"):
            json.loads(Path(path).read_bytes())
        return auth.load_config()
    except OSError as error:
        reason = os_reason(error)
    except (AttributeError, TypeError):
        reason = "a value is not of the expected type"
    except (DockerException, ValueError) as error:
        reason = str(error)
    raise ImageError(
        f"{path}: not a configuration of Docker ({reason}); correct the file or remove it"
    )


def _path() -> str:
    from docker.utils.config import find_config_file

    return str(find_config_file() or "")


def _missing_helper(config: AuthConfig, host: str) -> str:
    """Return the program that is to have a registry's credentials if it is not installed."""
    store = config.get_credential_store(host)
    program = f"docker-credential-{store}"
    return program if store and not shutil.which(program) else ""
