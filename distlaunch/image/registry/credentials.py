"""Who we are to a registry: by Docker's configuration, and by google-auth for Google's."""

from __future__ import annotations

import base64
import binascii
import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distlaunch.errors import GoogleError, ImageError
from distlaunch.image.reference import DOCKER_HUB, is_google

_DOCKER_HUB_KEY = "https://index.docker.io/v1/"
_NOT_FOUND = "credentials not found"  # docker-credential-helpers' own words for it
_TOKEN = "<token>"  # noqa: S105 - the name that a helper gives beside an identity token
_HELPER_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user name with a password, or a token that stands for both.

    Parameters
    ----------
    identity_token
        What OAuth calls a refresh token; with one there is neither name nor password.
    member
        Who this is as Google's IAM writes it, where that is known.
    source
        Where they are from, as ``/home/ann/.docker/config.json``; for messages.
    """

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    member: str = ""
    source: str = ""


def credentials(host: str) -> Credentials | None:
    """Find out who we are to a registry, None for nobody in particular.

    Docker's configuration is read as Docker reads it (``DOCKER_CONFIG``; ``credHelpers``, then
    ``credsStore``, then ``auths``). For Google's registries what stands in ``auths`` comes first,
    then google-auth, and a helper, which is a process of a second, only where that finds nothing.

    Parameters
    ----------
    host
        The registry, as `Reference.host` says it.

    Raises
    ------
    ImageError
        If Docker's configuration cannot be read, its credential helper is broken, or Google gives
        no token.
    GoogleError
        If the application default credentials are there and cannot be read.
    """
    file = _config_file()
    config = _read(file)
    written = _from_auths(config, host, file)
    if not is_google(host):
        return _from_helper(config, host, file) or written
    return written or _from_google() or _from_helper(config, host, file)


def _config_file() -> Path:
    folder = os.environ.get("DOCKER_CONFIG")
    return (Path(folder) if folder else Path.home() / ".docker") / "config.json"


def _read(file: Path) -> dict[str, Any]:
    try:
        config = json.loads(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as problem:
        raise ImageError(
            f"{file}: docker's configuration cannot be read ({(problem.strerror or '').lower()})"
        ) from problem
    except ValueError as problem:
        raise ImageError(f"{file}: docker's configuration is not JSON ({problem})") from problem
    return config if isinstance(config, dict) else {}


def _from_auths(config: dict[str, Any], host: str, file: Path) -> Credentials | None:
    entries = config.get("auths")
    if not isinstance(entries, dict):
        return None
    for key, entry in entries.items():
        if isinstance(entry, dict) and _host_of(key) == host:
            return _from_entry(entry, key, file)
    return None


def _host_of(key: str) -> str:
    """Return the registry that a key of Docker's stands for; keys may be URLs."""
    host = key.removeprefix("https://").removeprefix("http://").split("/", 1)[0]
    return DOCKER_HUB if host in ("index.docker.io", "registry-1.docker.io") else host


def _from_entry(entry: dict[str, Any], key: str, file: Path) -> Credentials | None:
    source = str(file)
    if entry.get("identitytoken"):
        return Credentials(identity_token=entry["identitytoken"], source=source)
    if entry.get("auth"):
        try:
            name, colon, password = base64.b64decode(entry["auth"]).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError, TypeError):
            colon = ""
        if not colon:
            raise ImageError(
                f"{file}: auths.{key}.auth is not NAME:PASSWORD in base64; "
                f"run 'docker login {key}' again"
            )
        return Credentials(name, password.rstrip("\0"), source=source)
    if entry.get("username"):
        return Credentials(entry["username"], entry.get("password", ""), source=source)
    return None


def _from_helper(config: dict[str, Any], host: str, file: Path) -> Credentials | None:
    helpers = config.get("credHelpers")
    key = _DOCKER_HUB_KEY if host == DOCKER_HUB else host
    name = (helpers.get(key) if isinstance(helpers, dict) else None) or config.get("credsStore")
    if not name:
        return None
    program = f"docker-credential-{name}"
    found = _ask(program, key, file)
    if not found.get("Username") and not found.get("Secret"):
        return None
    if found["Username"] == _TOKEN:
        return Credentials(identity_token=found["Secret"], source=program)
    return Credentials(found["Username"], found["Secret"], source=program)


def _ask(program: str, key: str, file: Path) -> dict[str, str]:
    """Run a helper; it reads the registry and writes JSON (docker-credential-helpers)."""
    try:
        done = subprocess.run(
            [program, "get"],
            input=key,
            capture_output=True,
            text=True,
            timeout=_HELPER_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise _broken(program, file, "it is not on PATH") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise _broken(program, file, str(problem)) from problem
    except subprocess.TimeoutExpired:
        raise _broken(program, file, f"no answer in {_HELPER_SECONDS} s") from None
    said = (done.stdout + done.stderr).strip()
    if done.returncode:
        if _NOT_FOUND in said:
            return {}
        last = said.splitlines()[-1] if said else f"exit code {done.returncode}"
        raise _broken(program, file, last)
    try:
        answer = json.loads(done.stdout)
        return {word: str(answer.get(word, "")) for word in ("Username", "Secret")}
    except (ValueError, AttributeError):
        raise _broken(program, file, "its answer is not JSON") from None


def _broken(program: str, file: Path, why: str) -> ImageError:
    return ImageError(
        f"credential helper broken: {program} ({why}); install it, or take it out of "
        f"credHelpers and credsStore in {file}"
    )


def _from_google() -> Credentials | None:
    """Return an access token of the application default credentials, if there are any."""
    from google.auth.exceptions import GoogleAuthError, TransportError
    from google.auth.transport.requests import Request

    from distlaunch.google import auth

    try:
        found = auth.load_credentials(None)
        found.refresh(Request())  # type: ignore[no-untyped-call]
    except GoogleError:
        if auth.credentials_file() is None:
            return None
        raise
    except TransportError as problem:
        raise ImageError(
            "google, which gives out the tokens for its registries, cannot be reached; "
            "check the network"
        ) from problem
    except GoogleAuthError as problem:
        why = " ".join(str(problem.args[0] if problem.args else problem).split())
        raise ImageError(
            f"google's credentials give no token ({why}); "
            "run 'gcloud auth application-default login'"
        ) from problem
    return Credentials(
        "oauth2accesstoken",
        str(found.token),
        member=auth.iam_member(found) or "",
        source="google's application default credentials",
    )
