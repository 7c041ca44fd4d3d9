"""What pip on this machine knows of package indexes, for a pip that runs in a container.

All of it counts as secret: it is given to one process and never becomes part of an image.
"""

from __future__ import annotations

import configparser
import netrc
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_PLACE = "/dev/shm"  # noqa: S108 - memory of the container that is in no layer
_PIECE = 100_000  # characters of a file in one variable: the system takes no more than 128 KiB
_LISTS = ("index-url", "extra-index-url", "find-links")
_WORDS = ("trusted-host", "proxy")
_FILES = {"cert": "ca.pem", "client-cert": "client.pem"}
_SECTIONS = ("global", "install")
_URL = re.compile(r"https?://[^\s'\"]+")
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}", re.ASCII)
_GOOGLE = ".pkg.dev"


@dataclass(frozen=True, slots=True)
class PipSettings:
    """What a pip elsewhere needs to reach the indexes that pip here reaches.

    Parameters
    ----------
    variables
        For its environment.
    files
        Texts by file name, for a folder that no image holds.
    """

    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __bool__(self) -> bool:
        return bool(self.variables or self.files)

    def environment(self) -> dict[str, str]:
        """Return the environment of the command that `around` returns."""
        pieces = dict(_pieces(self.files))
        return {"PIP_NO_CACHE_DIR": "1", **self.variables, **pieces}

    def around(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """Return a command that first lays the files down where only it finds them."""
        names = dict.fromkeys(name for name, _ in _pieces(self.files))
        lines = ["umask 077"]
        for number, file in enumerate(self.files):
            mine = "".join(f"${name}" for name in names if name.startswith(f"DL{number}_"))
            lines.append(f'printf %s "{mine}" > {_PLACE}/{file}')
        lines += [f"unset {name}" for name in names]
        return ("/bin/sh", "-c", "; ".join([*lines, 'exec "$@"']), "sh", *command)


def pip_settings(
    requirements: Iterable[str] = (), *, files: Iterable[Path] | None = None
) -> PipSettings:
    """Return what pip on this machine is set to, empty where that is nothing.

    pip's configuration files and variables are read as pip reads them; what leads to files of this
    machine is left out, as there are none of it in a container. Of netrc only what belongs to an
    index is taken, and of the environment only what `requirements` name, as ``${TOKEN}``.

    Parameters
    ----------
    requirements
        The texts of requirements files.
    files
        pip's configuration files, the more important ones later; by default those that it reads.
    """
    told = _configured(_config_files() if files is None else files)
    variables = {_variable(name): told[name] for name in (*_LISTS, *_WORDS) if told.get(name)}
    texts = {}
    for name, file in _FILES.items():
        text = _text_of(told.get(name))
        if text:
            texts[file] = text
            variables[_variable(name)] = f"{_PLACE}/{file}"
    asked = list(requirements)
    logins = _logins([*variables.values(), *asked])
    if logins:
        texts["netrc"] = logins
        variables["NETRC"] = f"{_PLACE}/netrc"
    for name in _VARIABLE.findall("\n".join(asked)):
        if name in os.environ:
            variables[name] = os.environ[name]
    return PipSettings(variables, texts)


def pip_files() -> dict[str, Path]:
    """Return the files with pip's settings and with its logins, by the names of build secrets."""
    settings = [file for file in _config_files() if file.is_file()]
    logins = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    found = {"pip.conf": settings[-1]} if settings else {}
    return found | ({"netrc": logins} if logins.is_file() else {})


def _configured(files: Iterable[Path]) -> dict[str, str]:
    """Return pip's settings by their long names, those of files of this machine left out."""
    found: dict[str, dict[str, str]] = {}
    for file in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(file, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):  # pip itself would say so
            continue
        for section in _SECTIONS:
            if parser.has_section(section):
                found.setdefault(section, {}).update(parser.items(section))
    told: dict[str, str] = {}
    for section in _SECTIONS:
        told |= {name.replace("_", "-"): text for name, text in found.get(section, {}).items()}
    for name in (*_LISTS, *_WORDS, *_FILES):
        told[name] = os.environ.get(_variable(name)) or told.get(name, "")
    for name in _LISTS:
        told[name] = " ".join(url for url in told[name].split() if _URL.match(url))
    return told


def _config_files() -> Iterator[Path]:
    """Give pip's configuration files, each more important than the one before."""
    named = os.environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    home, xdg = Path.home(), os.environ.get("XDG_CONFIG_HOME")
    yield from (Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf"))
    yield from (home / ".pip/pip.conf", home / "Library/Application Support/pip/pip.conf")
    yield (Path(xdg) if xdg else home / ".config") / "pip/pip.conf"
    yield Path(sys.prefix) / "pip.conf"
    if named:
        yield Path(named)


def _variable(name: str) -> str:
    return f"PIP_{name.upper().replace('-', '_')}"


def _text_of(file: str | None) -> str:
    try:
        return Path(file).expanduser().read_text(encoding="utf-8") if file else ""
    except (OSError, UnicodeDecodeError):  # pip itself would say so
        return ""


def _logins(texts: Iterable[str]) -> str:
    """Return the lines of a netrc file for the hosts of all URLs that bring no login themselves."""
    urls = [urlsplit(url) for text in texts for url in _URL.findall(text)]
    hosts = dict.fromkeys(url.hostname for url in urls if url.hostname and not url.username)
    lines = []
    for host in hosts:
        login = _login(host)
        if login:
            lines.append(f"machine {host} login {login[0]} password {login[1]}\n")
    return "".join(lines)


def _login(host: str) -> tuple[str, str] | None:
    """Return user name and password for a host, None where there are none."""
    file = os.environ.get("NETRC") or Path.home() / ".netrc"
    try:
        found = netrc.netrc(file).hosts.get(host)
    except (OSError, netrc.NetrcParseError):
        found = None
    if found:
        return found[0], found[2] or ""
    return _of_google(host) if host.endswith(_GOOGLE) else None


def _of_google(host: str) -> tuple[str, str] | None:
    from distlaunch.image.registry.credentials import credentials

    who = credentials(host)
    return (who.username, who.password) if who and who.password else None


def _pieces(files: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Give variables that hold the files, each no longer than the system takes."""
    for number, text in enumerate(files.values()):
        for at in range(0, len(text), _PIECE):
            yield f"DL{number}_{at // _PIECE}", text[at : at + _PIECE]
