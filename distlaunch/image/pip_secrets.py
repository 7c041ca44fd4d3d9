"""Pip settings of this machine as BuildKit secrets for the pip steps of a build.

A secret is mounted into one step. It becomes no part of a layer, of the history or of a cache.
"""

from __future__ import annotations

import ast
import netrc
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from distlaunch.image.reference import is_google

if TYPE_CHECKING:
    from collections.abc import Iterable

VARIABLES = "pip.env"  # the secret with the variables of pip's process, for a shell
FOLDER = "/run/secrets"
DOCKERFILE_SECRETS = ("pip.conf", "netrc")  # that the user's own Dockerfile may mount

_LISTS = ("index-url", "extra-index-url", "find-links")
_WORDS = ("trusted-host", "proxy")
_FILES = ("cert", "client-cert")
_PRECEDENCE = ("global", "install", ":env:")
_URL = re.compile(r"https?://[^\s'\"]+")
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}", re.ASCII)  # as in requirements files


def pip_secrets(requirements: Iterable[str]) -> dict[str, str]:
    """Return secrets by id: the settings by which pip finds packages, empty if there are none.

    `VARIABLES` sets pip's variables; the others are files that these name in `FOLDER`. The
    requirements are texts that name package indexes and ``${VARIABLES}``, besides pip's settings.
    """
    texts = list(requirements)
    settings = _pip_settings()
    variables = {name: settings.get(name, "") for name in (*_LISTS, *_WORDS)}
    for name in _LISTS:  # a folder of this machine is not in a container
        variables[name] = " ".join(_URL.findall(variables[name]))
    files = {name: _read(settings.get(name)) for name in _FILES}
    files["netrc"] = _logins([*variables.values(), *texts])
    secrets = {name: text for name, text in files.items() if text}
    env = {_variable(name): value for name, value in variables.items() if value}
    for name in secrets:
        env["NETRC" if name == "netrc" else _variable(name)] = f"{FOLDER}/{name}"
    for name in _VARIABLE.findall("\n".join(texts)):
        if name in os.environ:
            env[name] = os.environ[name]
    if env:
        secrets[VARIABLES] = "".join(f"{name}={shlex.quote(env[name])}\n" for name in env)
    return secrets


def dockerfile_secrets() -> dict[str, str]:
    """Return `DOCKERFILE_SECRETS`, as far as this machine has them."""
    settings = _pip_settings()
    lines = [f"{name} = {settings[name]}" for name in (*_LISTS, *_WORDS) if name in settings]
    config = "".join(f"{line}\n" for line in ("[global]", *lines) if lines)
    secrets = zip(DOCKERFILE_SECRETS, (config, _read(_netrc())), strict=True)
    return {name: text for name, text in secrets if text}


def _pip_settings() -> dict[str, str]:
    """Return pip's settings from its files and variables by their long names."""
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-m", "pip", "config", "list"],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
        cwd=sys.prefix,  # and not the project, which may have a folder named pip
    )
    sections: dict[str, dict[str, str]] = {section: {} for section in _PRECEDENCE}
    for line in done.stdout.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.partition(".")
        if section in sections:
            sections[section][name] = ast.literal_eval(value).replace("\n", " ")
    return {name: value for section in sections.values() for name, value in section.items()}


def _read(file: str | None) -> str:
    try:
        return Path(file).expanduser().read_text(encoding="utf-8") if file else ""
    except (OSError, UnicodeDecodeError):  # as if it were not set: pip fails with the reason
        return ""


def _logins(texts: Iterable[str]) -> str:
    """Return a netrc file with the logins for those URLs that have none in them."""
    urls = [urlsplit(url) for text in texts for url in _URL.findall(text)]
    hosts = dict.fromkeys(url.hostname for url in urls if url.hostname and not url.username)
    logins = {host: _login(host) for host in hosts}
    return "".join(
        f"machine {host} login {login[0]} password {login[1]}\n"
        for host, login in logins.items()
        if login
    )


def _login(host: str) -> tuple[str, str] | None:
    """Return the user name and the password for a host."""
    from distlaunch.image.registry.credentials import find_credentials

    try:
        entry = netrc.netrc(_netrc()).hosts.get(host)
    except (OSError, netrc.NetrcParseError):
        entry = None
    if entry:
        return entry[0], entry[2] or ""
    google = find_credentials(host) if is_google(host) else None
    return (google.username, google.password) if google and google.password else None


def _netrc() -> str:
    """Return the file that pip reads: that of Windows has another name."""
    files = (Path.home() / ".netrc", Path.home() / "_netrc")
    return os.environ.get("NETRC") or str(files[not files[0].exists()])


def _variable(name: str) -> str:
    return f"PIP_{name.upper().replace('-', '_')}"
