"""The machines of one's own cluster, from ``a:2222,b,[::1]:2222``."""

from __future__ import annotations

import re

from distlaunch.errors import UsageError
from distlaunch.job.model import Task

PORT = 2222  # as on Vertex AI
_HIGHEST_PORT = 65535
_BRACKETED = re.compile(r"\[(?P<host>[^\[\]]*)\](:(?P<port>.*))?")
_NAMED = re.compile(r"(?P<host>[^:]*)(:(?P<port>[^:]*))?")
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?", re.ASCII)


def parse_hosts(text: str) -> dict[Task, str]:
    """Return the address of each task: the first host is the chief, the others are workers.

    Parameters
    ----------
    text
        Names or addresses with commas between; a port of 2222 where none is given.

    Raises
    ------
    UsageError
        If one is empty, malformed or there twice.
    """
    addresses = [_address(word.strip(), text) for word in text.split(",")]
    twice = next((each for each in addresses if addresses.count(each) > 1), None)
    if twice:
        raise UsageError(f"--hosts: {twice} is there twice; each task needs its own address")
    chief, *workers = addresses
    tasks = {Task("chief"): chief}
    return tasks | {Task("worker", index): host for index, host in enumerate(workers)}


def _address(word: str, text: str) -> str:
    if not word:
        raise UsageError(f"--hosts: an empty name in {text!r}; expected as a:2222,b,c")
    bracketed = _BRACKETED.fullmatch(word)
    found = bracketed or _NAMED.fullmatch(word)
    if found is None:
        raise UsageError(
            f"--hosts: {word!r} is no host:port; an IPv6 address stands in brackets, as [::1]:2222"
        )
    host = found["host"]
    if not (_is_ipv6(host) if bracketed else _NAME.fullmatch(host)):
        raise UsageError(f"--hosts: {word!r} has no valid host; expected as a:2222,b,c")
    shown = f"[{host}]" if bracketed else host
    return f"{shown}:{_port(found['port'], word)}"


def _port(text: str | None, word: str) -> int:
    if text is None:
        return PORT
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) <= _HIGHEST_PORT:
        raise UsageError(f"--hosts: {word!r}: expected a port from 1 to {_HIGHEST_PORT}")
    return int(text)


def _is_ipv6(host: str) -> bool:
    from ipaddress import AddressValueError, IPv6Address

    try:
        IPv6Address(host)
    except AddressValueError:
        return False
    return True
