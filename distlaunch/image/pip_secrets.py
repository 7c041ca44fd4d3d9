"""Pip settings of this machine: as BuildKit secrets for the pip steps of a build, and for uv.

A secret is mounted into one step. It becomes no part of a layer, of the history or of a cache. pip
itself is not run. Of the variables that requirements name, only those get a value that the user
lists: a project from elsewhere would send any other to its own package index.
"""

from __future__ import annotations

import netrc
import os
import re
import shlex
import sys
from configparser import Error, RawConfigParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from distlaunch.errors import Diagnostic
from distlaunch.image.reference import is_google

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

VARIABLES = "pip.env"  # the secret with the variables of pip's process, for a shell
FOLDER = "/run/secrets"
LISTED = "DISTLAUNCH_BUILD_VARIABLES"  # names of variables for requirements, with commas
DOCKERFILE_SECRETS = ("pip.conf", "netrc")  # that the user's own Dockerfile may mount

_LISTS = ("index-url", "extra-index-url", "find-links")
_WORDS = ("trusted-host", "proxy")
_FILES = ("cert", "client-cert")
# uv's variables for pip's settings: https://docs.astral.sh/uv/reference/environment/
_UV = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "proxy": "ALL_PROXY",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
}
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
    env |= _listed_variables("\n".join(texts))
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


def uv_settings(folder: Path, requirements: Iterable[str]) -> dict[str, str]:
    """Return uv's variables for pip's settings; logins are written into a private folder."""
    settings = _pip_settings()
    env = {variable: settings[name] for name, variable in _UV.items() if settings.get(name)}
    if "find-links" in settings:
        env[_UV["find-links"]] = ",".join(settings["find-links"].split())
    if logins := _logins([*settings.values(), *map(expand_variables, requirements)]):
        (folder / "netrc").write_text(logins, encoding="utf-8")
        env["NETRC"] = str(folder / "netrc")
    return env


def has_no_index() -> bool:
    """Return whether pip's settings forbid package indexes."""
    return _pip_settings().get("no-index", "").lower() in ("1", "true", "yes", "on")


def variable_refusals(lines: Iterable[tuple[str, str]]) -> Iterator[Diagnostic]:
    """Yield the variables in lines, which have their locations, that the user does not list."""
    for location, text in lines:
        for name in sorted(set(_VARIABLE.findall(text)) - _listed_variables(text).keys()):
            what = f"${{{name}}} is not passed to builds"
            if name not in os.environ:
                what = f"the environment variable {name} is not set"
            remedy = f"set {LISTED}={name} if the line's host may get its value"
            yield Diagnostic(what, remedy, location)


def expand_variables(text: str) -> str:
    """Return a requirement with the values of the variables that the user lists."""
    values = _listed_variables(text)
    return _VARIABLE.sub(lambda match: values.get(match[1], match[0]), text)


def _listed_variables(text: str) -> dict[str, str]:
    listed = os.environ.get(LISTED, "").replace(",", " ").split()
    named = _VARIABLE.findall(text)
    return {name: os.environ[name] for name in named if name in listed and name in os.environ}


def _pip_settings() -> dict[str, str]:
    """Return pip's settings from its files and variables by their long names."""
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for file in _pip_files():
        parser = RawConfigParser()
        try:
            parser.read_string(_read(str(file)))
        except Error:  # pip reports it
            continue
        for section in sections:
            pairs = parser.items(section) if parser.has_section(section) else ()
            sections[section] |= {_option(key): value.replace("\n", " ") for key, value in pairs}
    variables = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
    env = {_option(key.removeprefix("PIP_")): value for key, value in variables.items()}
    return {**sections["global"], **sections["install"], **env}


def _option(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def _pip_files() -> list[Path]:
    """Return pip's files, the last one wins: https://pip.pypa.io/en/stable/topics/configuration/."""
    env, home = os.environ.get, Path.home()
    named = env("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return []
    name = "pip.ini" if sys.platform == "win32" else "pip.conf"
    if sys.platform == "win32":
        system = [Path(env("PROGRAMDATA", "C:/ProgramData"), "pip")]
        user = [home / "pip", Path(env("APPDATA", home / "AppData/Roaming"), "pip")]
    else:
        system = [Path(each, "pip") for each in env("XDG_CONFIG_DIRS", "/etc/xdg").split(":")]
        system += [Path("/Library/Application Support/pip"), Path("/etc")]
        user = [home / ".pip", Path(env("XDG_CONFIG_HOME", home / ".config"), "pip")]
        user.append(home / "Library/Application Support/pip")
    if named and Path(named).exists():
        user = []
    files = [folder / name for folder in (*system, *user, Path(sys.prefix))]
    return [*files, *([Path(named)] if named else [])]


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
