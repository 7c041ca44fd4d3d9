"""Ports for the tasks, held until just before they are needed."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch.errors import DistlaunchError

if TYPE_CHECKING:
    from collections.abc import Collection

    from typing_extensions import Self

HOST = "127.0.0.1"

# Well-known services are below.
_LOWEST = 10_000
# Linux's, for systems that do not show theirs.
_DEFAULT_FIRST_EPHEMERAL = 32_768
_TRIES = 1_000  # beyond as many as there are to be
_LISTEN = "0A"  # in the tables of the system
_TCP_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class HeldPorts:
    """TCP ports that no other process gets until they are released.

    They are below those that the system hands to outgoing connections, one of which could take
    a port between its release and the moment its task listens. To keep other launchers from
    taking it then, whose tasks would join this cluster, the UDP ports of the same numbers are held
    to the end.
    """

    def __init__(self, count: int) -> None:
        self._sockets: list[socket.socket] = []
        self._reservations: list[socket.socket] = []
        candidates = _candidates()
        for port in random.sample(candidates, min(count + _TRIES, len(candidates))):
            if len(self._sockets) < count:
                self._hold(port)
        self.numbers = tuple(holder.getsockname()[1] for holder in self._sockets)
        if len(self.numbers) < count:
            self.close()
            raise DistlaunchError(f"no {count} free ports on {HOST}; end what holds them")

    def _hold(self, port: int) -> None:
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        reservation = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            for reserved in (holder, reservation):
                reserved.bind(("", port))  # everywhere, as TensorFlow's servers do
        except OSError:
            holder.close()
            reservation.close()
        else:
            self._sockets.append(holder)
            self._reservations.append(reservation)

    def release(self) -> None:
        """Let the tasks have the ports."""
        for holder in self._sockets:
            holder.close()
        self._sockets.clear()

    def close(self) -> None:
        """Let any process have the ports."""
        self.release()
        for reservation in self._reservations:
            reservation.close()
        self._reservations.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_any_listening(ports: Collection[int]) -> bool:
    """Whether a process listens on one of the ports, True where the system does not list them."""
    tables = [table.read_text("ascii").splitlines()[1:] for table in _TCP_TABLES if table.exists()]
    wanted = {f":{port:04X}" for port in ports}
    fields = (line.split()[1:4] for lines in tables for line in lines)
    is_found = any(state == _LISTEN and local[-5:] in wanted for local, _, state in fields)
    return is_found or not tables


def is_taken(port: int) -> bool:
    """Whether a process listens on a port, or holds it."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        # Connections that have just ended do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return True
        return False


def _candidates() -> range:
    try:
        first_ephemeral = int(_EPHEMERAL_RANGE.read_text("ascii").split()[0])
    except (OSError, ValueError, IndexError):
        first_ephemeral = _DEFAULT_FIRST_EPHEMERAL
    # Where outgoing connections have nearly all ports, an attempt may lose one, and is repeated.
    if first_ephemeral - _LOWEST < _TRIES:
        return range(_LOWEST, 65_536)
    return range(_LOWEST, first_ephemeral)
