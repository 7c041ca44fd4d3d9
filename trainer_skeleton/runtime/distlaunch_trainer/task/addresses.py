"""Whether something listens at an address."""

from __future__ import annotations

import socket

_CONNECT_SECONDS = 2.0


def listens(address: str) -> bool:
    """Return whether a connection to ``host:port`` is accepted."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS):
            return True
    except (OSError, OverflowError):
        return False
